"""Max pools that remember places, so that neither their input nor the mask of its activation is kept."""

from __future__ import annotations

from circle_train.backends.native.fusion.products import ACTIVATIONS
from circle_train.backends.native.fusion.rewriter import Rewriter
from circle_train.ir import DType, Node, Tensor, TensorType
from circle_train.ops.attributes import Activation
from circle_train.ops.internal.gradient import ActivationGradient, Gradient
from circle_train.ops.internal.pool_places import LARGEST_WINDOW, MaxPoolAndPlaces, MaxPoolScatter
from circle_train.ops.layers.pool import MaxPool2D


def remember_places(rewriter: Rewriter) -> None:
    """Replace a max pool and its gradient."""
    for node in rewriter.nodes():
        op = node.op
        if (
            not isinstance(op, MaxPool2D)
            or op.activation
            or op.filter_height * op.filter_width > LARGEST_WINDOW
        ):
            continue
        x, y = node.inputs[0], node.outputs[0]
        assert x is not None
        found = [r for r in rewriter.readers(x) if isinstance(r.op, Gradient) and r.op.of is op]
        if len(found) != 1 or x.dtype is not DType.FLOAT32:
            continue
        gradient, kind = found[0], Activation.NONE
        members, dx = [gradient], gradient.outputs[0]
        mask = rewriter.only_reader(dx)
        if mask is not None and _undone(mask) and mask.inputs[1] is x:
            kind, dx = _undone(mask), mask.outputs[0]
            members.append(mask)
        if kind in (Activation.TANH, Activation.SIGN_BIT):
            continue
        places = Tensor(f"places({y.name})", TensorType(DType.UINT8, y.shape))
        dy = gradient.inputs[0]
        forward = Node(MaxPoolAndPlaces(op), [x], [y, places], node.index, [node])
        rewriter.replace([node], forward)
        inputs = [dy, places, y] if kind else [dy, places]
        backward = Node(MaxPoolScatter(op, x.shape, kind), inputs, [dx], -1, members)
        rewriter.replace(members, backward)


def _undone(node: Node) -> Activation:
    """The activation that a node undoes by its output, fused or standing alone."""
    op = node.op
    if isinstance(op, ActivationGradient):
        return op.kind
    return ACTIVATIONS.get(type(op.of), Activation.NONE) if isinstance(op, Gradient) else Activation.NONE
