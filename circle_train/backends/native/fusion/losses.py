"""A loss, its mean and the gradient of the prediction in one pass."""

from __future__ import annotations

from circle_train.backends.native.binders.loss import LossOptions
from circle_train.backends.native.fusion.rewriter import Rewriter
from circle_train.ir import DType, Node, Tensor
from circle_train.ops.base import Op
from circle_train.ops.internal.gradient import Gradient
from circle_train.ops.internal.loss import (
    CrossEntropy,
    SoftmaxCrossEntropy,
    SparseCrossEntropy,
    SparseSoftmaxCrossEntropy,
)
from circle_train.ops.numeric.arithmetic import SquaredDifference
from circle_train.ops.numeric.reduce import Mean, Sum
from circle_train.record import mutable

KERNELS: dict[type[Op], str] = {
    SoftmaxCrossEntropy: "cross_entropy",
    SparseSoftmaxCrossEntropy: "cross_entropy",
    CrossEntropy: "cross_entropy",
    SparseCrossEntropy: "cross_entropy",
    SquaredDifference: "mean_squared_error",
}


@mutable
class Reduced:
    """A loss of items, the reductions down to one number, and their product of factors."""

    items: Node
    reductions: list[Node]
    scale: float

    @property
    def total(self) -> Tensor:
        return self.reductions[-1].outputs[0]


def join_losses(rewriter: Rewriter) -> None:
    """Fuse each loss that is one of KERNELS under means and sums."""
    gradients: dict[int, list[Node]] = {}
    for node in rewriter.nodes():
        if isinstance(node.op, Gradient) and type(node.op.of) in KERNELS:
            gradients.setdefault(id(node.op.of), []).append(node)
    for node in rewriter.nodes():
        if type(node.op) not in KERNELS or node not in rewriter:
            continue
        x, target = node.inputs
        assert x is not None and target is not None
        if x.dtype is not DType.FLOAT32 or not x.shape or x.type.size == 0 or target.producer is not None:
            continue
        reduced = _reduced(rewriter, node)
        if reduced is not None:
            _fuse(rewriter, reduced, gradients.get(id(node.op), []))


def _reduced(rewriter: Rewriter, node: Node) -> Reduced | None:
    """Follow MEAN and SUM to a tensor of one element that is kept."""
    reductions: list[Node] = []
    scale = 1.0
    tensor = node.outputs[0]
    while not (reductions and tensor.type.size == 1):
        found = [r for r in rewriter.readers(tensor) if type(r.op) in (Mean, Sum) and r.inputs[0] is tensor]
        if len(found) != 1 or tensor in rewriter.keep:
            return None
        reductions.append(found[0])
        count = tensor.type.size // max(found[0].outputs[0].type.size, 1)
        scale /= count if type(found[0].op) is Mean else 1
        tensor = found[0].outputs[0]
    return Reduced(node, reductions, scale)


def _fuse(rewriter: Rewriter, reduced: Reduced, gradients: list[Node]) -> None:
    node = reduced.items
    members = [node, *reduced.reductions]
    made, results = ["loss"], [reduced.total]
    backward = _backward(rewriter, reduced, gradients)
    if backward is not None:
        members += backward
        made.append("dx")
        results.append(backward[0].outputs[0])
    inner = {t for member in members for t in member.outputs} - set(results)
    outside = {reader for t in inner for reader in rewriter.readers(t)} - set(members)
    if outside or inner & rewriter.keep:
        return
    x, target = node.inputs
    start = float(_seed(backward).data.reshape(-1)[0]) if backward is not None else 0.0
    of_probabilities = isinstance(node.op, (CrossEntropy, SparseCrossEntropy))
    options = LossOptions(reduced.scale, reduced.scale * start, tuple(made), of_probabilities)
    rewriter.fuse(members, KERNELS[type(node.op)], {"x": x, "target": target}, results, options)


def _backward(rewriter: Rewriter, reduced: Reduced, gradients: list[Node]) -> list[Node] | None:
    """The gradient of the prediction, and those of the reductions back to the constant it starts from."""
    x = reduced.items.inputs[0]
    found = [r for r in gradients if r in rewriter and x in r.inputs and _is_of_x(r.op)]
    if len(found) != 1:
        return None
    members = found
    for _ in reduced.reductions:
        maker = rewriter.producer(members[-1].inputs[0])
        if maker is None or not isinstance(maker.op, Gradient) or type(maker.op.of) not in (Mean, Sum):
            return None
        members.append(maker)
    return members if _seed(members).is_constant else None


def _seed(members: list[Node]) -> Tensor:
    """Where the gradients of a loss start: its last reduction has one element, so this has too."""
    seed = members[-1].inputs[0]
    assert seed is not None
    return seed


def _is_of_x(op: Op) -> bool:
    """Whether the prediction's gradient, not the target's."""
    return isinstance(op, Gradient) and op.of.input_name(op.wrt) in ("x", "x1")
