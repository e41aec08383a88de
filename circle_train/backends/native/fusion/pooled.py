"""Max pools that remember places, so that neither their input nor the mask of its activation is kept; and a first
convolution together with the max pool over it, so that the largest of its tensors, whole images, have no memory.

Forward the pool's windows are taken row by row from the convolution as it is computed; backward the gradient that the pool
sends back is used up row by row by that of the weights.
"""

from __future__ import annotations

from circle_train.backends.native.engine.abi import NARROW_CHANNELS, NARROW_OUTPUTS
from circle_train.backends.native.fusion.products import ACTIVATIONS, ProductOptions
from circle_train.backends.native.fusion.rewriter import Rewriter
from circle_train.backends.native.fusion.weights import WeightOptions
from circle_train.ir import DType, Node, Tensor, TensorType
from circle_train.ops.attributes import Activation
from circle_train.ops.base import Op
from circle_train.ops.internal.fused import Fused
from circle_train.ops.internal.gradient import ActivationGradient, Gradient
from circle_train.ops.internal.padded import PaddedConv2D
from circle_train.ops.internal.pool_places import LARGEST_WINDOW, MaxPoolAndPlaces, MaxPoolScatter
from circle_train.ops.layers.conv import Conv2D
from circle_train.ops.layers.pool import MaxPool2D
from circle_train.record import record

PLAIN = (Conv2D, PaddedConv2D)


@record
class PooledOptions:
    """The convolution, the shape of its output, and the pool."""

    product: ProductOptions
    shape: tuple[int, ...]
    pool: MaxPool2D


@record
class PooledWeightOptions:
    """What becomes of the gradients, and the node that made theirs."""

    weights: WeightOptions
    scatter: MaxPoolScatter


def join_pools(rewriter: Rewriter) -> None:
    """(y, places) = pool(act(conv(x, w) + b))"""
    for node in rewriter.nodes():
        if not isinstance(node.op, MaxPoolAndPlaces) or not _is_apart(node.op.of):
            continue
        conv = rewriter.producer(node.inputs[0])
        if conv is None or rewriter.only_reader(conv.outputs[0]) is not node:
            continue
        product, roles = _product(conv)
        x, w = roles.get("x"), roles.get("w")
        if product is None or x is None or w is None or roles.get("add") is not None:
            continue
        if product.act in (Activation.TANH, Activation.SIGN_BIT) or not _has_few_channels(
            product.op, x, w.shape
        ):
            continue
        options = PooledOptions(product, conv.outputs[0].shape, node.op.of)
        rewriter.fuse([conv, node], "convolution_pool", roles, node.outputs, options)


def join_pooled_gradients(rewriter: Rewriter) -> None:
    """The gradients of the weights from the pool's output."""
    for node in rewriter.nodes():
        if not isinstance(node.op, Fused) or node.op.kernel != "convolution_w":
            continue
        roles, options = node.op.by_role(node.inputs), node.op.settings
        sent = roles.pop("dy")
        scatter = rewriter.producer(sent)
        if scatter is None or not isinstance(scatter.op, MaxPoolScatter) or not _is_apart(scatter.op.of):
            continue
        if rewriter.only_reader(sent) is not node or not _has_few_channels(
            options.op, roles["x"], options.shape
        ):
            continue
        dy, places, y = scatter.op.pad(scatter.inputs)
        roles |= {"dy": dy, "places": places, "y": y}
        settings = PooledWeightOptions(options, scatter.op)
        rewriter.fuse([scatter, node], "convolution_pool_w", roles, node.outputs, settings)


def _product(node: Node) -> tuple[ProductOptions | None, dict[str, Tensor | None]]:
    """A convolution, joined with what follows it or not, and its tensors by role."""
    op = node.op
    if isinstance(op, Fused):
        return (op.settings if op.kernel == "convolution" else None), op.by_role(node.inputs)
    return (ProductOptions(op, op.activation) if type(op) in PLAIN else None), dict(
        zip("xwb", op.pad(node.inputs), strict=False)
    )


def _has_few_channels(op: Op, x: Tensor, weights: tuple[int, ...]) -> bool:
    """What the kernels take (see ct_conv_pool_args)."""
    outputs, _, width, channels = weights
    if (
        not isinstance(op, Conv2D)
        or type(op) not in PLAIN
        or op.dilation_w_factor != 1
        or x.dtype is not DType.FLOAT32
    ):
        return False
    return x.shape[3] == channels <= NARROW_CHANNELS and width > 1 and outputs % NARROW_OUTPUTS == 0


def _is_apart(pool: MaxPool2D) -> bool:
    """Whether no two windows overlap."""
    return pool.filter_height == pool.stride_h and pool.filter_width == pool.stride_w


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
