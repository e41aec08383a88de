"""Normalisation by the batch's statistics, with the activation or the sum behind it; its gradients make both again from x.

What is kept of the forward part is what was normalised and two numbers a channel: backward the activation's input is computed
anew where it is read, so that neither it nor a mask is in memory.
"""

from __future__ import annotations

from collections.abc import Sequence

from circle_train.backends.native.engine.abi import Act
from circle_train.backends.native.fusion.rewriter import Rewriter
from circle_train.ir import DType, Node, Tensor
from circle_train.ops.attributes import Activation
from circle_train.ops.base import Op
from circle_train.ops.internal.gradient import ActivationGradient, Gradient, Gradients
from circle_train.ops.internal.norms.batch_statistics import BatchStatistics, NormaliseByBatch
from circle_train.ops.internal.swish import Swish
from circle_train.ops.numeric import activation
from circle_train.ops.numeric.arithmetic import Add
from circle_train.record import mutable, record

ACTS: dict[type[Op], Act] = {
    activation.Relu: Act.RELU,
    activation.Relu6: Act.RELU6,
    activation.ReluN1To1: Act.RELU_N1_TO_1,
    activation.Tanh: Act.TANH,
    activation.HardSwish: Act.HARD_SWISH,
    Swish: Act.SWISH,
}


@record
class BatchNormOptions:
    """The op, the activation that goes with it, and what each output is."""

    op: NormaliseByBatch
    act: Act
    made: tuple[str, ...]


@mutable
class Behind:
    """What follows a normalisation: an activation, or a sum and perhaps an activation, and the last of their outputs."""

    out: Tensor
    act: Act = Act.NONE
    members: tuple[Node, ...] = ()
    add: Tensor | None = None
    activation: Node | None = None
    """The activation that stands alone directly behind it."""


def join_batch_norms(rewriter: Rewriter) -> None:
    """Statistics, normalisation and activation forward; activation and normalisation backward."""
    for node in rewriter.nodes():
        if type(node.op) is not NormaliseByBatch or node.outputs[0].dtype is not DType.FLOAT32:
            continue
        x = node.inputs[0]
        assert x is not None
        gradients = _readers(rewriter, x, Gradients, node.op)
        found = _readers(rewriter, x, BatchStatistics)
        if len(gradients) > 1 or len(found) != 1:
            continue
        back = gradients[0] if gradients else None
        behind = _behind(rewriter, node, back)
        if back is not None:
            _join_backward(rewriter, node, back, behind, found[0].outputs)
        given = dict(zip(("x", "gamma", "beta"), node.inputs, strict=True))
        options = BatchNormOptions(node.op, behind.act, ("y", "mean", "variance"))
        results = [behind.out, *found[0].outputs]
        rewriter.fuse(
            [found[0], node, *behind.members], "batch_norm", {**given, "add": behind.add}, results, options
        )


def _readers(rewriter: Rewriter, x: Tensor, kind: type[Op], of: Op | None = None) -> list[Node]:
    """Who reads x as its first or one of its inputs and is of a kind (a gradient of this op)."""
    readers = rewriter.readers(x)
    return [r for r in readers if isinstance(r.op, kind) and (of is None or getattr(r.op, "of", None) is of)]


def _behind(rewriter: Rewriter, node: Node, back: Node | None) -> Behind:
    y, own = node.outputs[0], node.op.activation
    if own:
        return Behind(y, Act(own) if own is not Activation.SIGN_BIT else Act.NONE)
    readers = [] if y in rewriter.keep else rewriter.readers(y)
    acts = [r for r in readers if type(r.op) in ACTS]
    if len(acts) == 1 and all(r is acts[0] or _is_gradient(r, acts[0]) for r in readers):
        dy = _dy(rewriter, back)
        if back is None or (dy is not None and _is_gradient(dy, acts[0])):
            act = ACTS[type(acts[0].op)]
            return Behind(acts[0].outputs[0], act, (acts[0],), activation=acts[0])
    return _sum_behind(rewriter, y)


def _sum_behind(rewriter: Rewriter, y: Tensor) -> Behind:
    """An ADD of another tensor of the same shape, with its activation or a RELU and its kin."""
    reader = rewriter.only_reader(y)
    if reader is None or type(reader.op) is not Add or reader.op.activation is Activation.SIGN_BIT:
        return Behind(y)
    other = reader.inputs[1] if reader.inputs[0] is y else reader.inputs[0]
    if other is None or other is y or other.shape != y.shape:
        return Behind(y)
    out, act = reader.outputs[0], Act(reader.op.activation)
    last = rewriter.readers(out) if not act and out not in rewriter.keep else []
    if len(last) == 1 and type(last[0].op) in ACTS:
        return Behind(last[0].outputs[0], ACTS[type(last[0].op)], (reader, last[0]), other)
    return Behind(out, act, (reader,), other)


def _dy(rewriter: Rewriter, back: Node | None) -> Node | None:
    """The node whose only use is to give the gradients what comes back."""
    maker = rewriter.producer(back.inputs[0]) if back is not None else None
    return maker if maker is not None and rewriter.only_reader(maker.outputs[0]) is back else None


def _is_gradient(node: Node, of: Node) -> bool:
    return isinstance(node.op, Gradient) and node.op.of is of.op and of.outputs[0].shape == node.op.type.shape


def _join_backward(
    rewriter: Rewriter, node: Node, back: Node, behind: Behind, statistics: Sequence[Tensor]
) -> None:
    """From what comes back to the activation; without it where that is not undone for these gradients alone."""
    undo = _dy(rewriter, back)
    own = undo is not None and isinstance(undo.op, ActivationGradient) and node.op.activation
    folds = undo is not None and bool(
        (own and undo.inputs[1] is node.outputs[0])
        or (behind.activation is not None and _is_gradient(undo, behind.activation))
    )
    members, act, dy = [back], Act.NONE, back.inputs[0]
    if folds and undo is not None:
        again = _again(node, behind.activation)
        values = {**dict(zip(node.outputs, again[0].outputs, strict=True)), behind.out: again[-1].outputs[0]}
        inputs = [t if t is None else values.get(t, t) for t in undo.inputs]
        undone = Node(undo.op, inputs, list(undo.outputs), members=[undo])
        rewriter.replace([undo], *again, undone)
        members, act, dy = [*again, undone, back], behind.act, undo.inputs[0]
    names = tuple(node.op.input_name(i) for i in back.op.wrt)
    roles = dict(zip(("x", "gamma", "beta"), node.inputs, strict=True))
    roles |= {"dy": dy, **dict(zip(("mean", "variance"), statistics, strict=True))}
    free = [dy] if names[0] == "x" and dy is not None else []
    options = BatchNormOptions(node.op, act, names)
    rewriter.fuse(members, "batch_norm_gradient", roles, back.outputs, options, free)


def _again(node: Node, act: Node | None) -> list[Node]:
    """The normalisation and its activation once more, for whoever reads what they make."""
    inputs, made = list(node.inputs), []
    for one in [node] if act is None else [node, act]:
        out = Tensor(f"again({one.outputs[0].name})", one.outputs[0].type)
        made.append(Node(one.op, inputs, [out], members=[]))
        inputs = [out]
    return made
