"""One bit an element instead of an activation's output, where the gradient wants to know nothing else of it."""

from __future__ import annotations

from circle_train.backends.native.fusion.rewriter import Rewriter
from circle_train.ir import DType, Node, Tensor
from circle_train.ops.activation import Clipped, Relu
from circle_train.ops.active_bits import ActiveBits, PassActive
from circle_train.ops.gradient import ActivationGradient, Gradient, GuardFinite

LEAST = 1 << 14
"""Bytes: smaller outputs are kept as they are."""


def keep_bits(rewriter: Rewriter) -> None:
    """Replace the masks that an activation's output is kept for alone."""
    backward = next((rewriter.position[n] for n in rewriter.nodes() if type(n.op) is GuardFinite), None)
    if backward is None:
        return
    found: dict[Tensor, list[Node]] = {}
    for node in rewriter.nodes():
        if bounds(node) is not None and node.inputs[1] is not None:
            found.setdefault(node.inputs[1], []).append(node)
    for y, masks in found.items():
        if y.dtype is not DType.FLOAT32 or y.type.nbytes < LEAST or y in rewriter.keep:
            continue
        maker = rewriter.producer(y)
        if maker is not None and maker.op.view_input is None and _late(rewriter, y, backward) == set(masks):
            _replace(rewriter, y, maker, masks)


def bounds(node: Node) -> tuple[float, float | None] | None:
    """Between what the output must lie for the gradient to pass; None: the node is no such mask."""
    op = node.op
    if isinstance(op, ActivationGradient):
        low, high = op.kind.bounds
        return None if low is None else (low, high)
    if isinstance(op, Gradient) and op.counts == (("dy", 1), ("y", 1)):
        if isinstance(op.of, Relu):
            return 0.0, None
        if isinstance(op.of, Clipped):
            return op.of.low, op.of.high
    return None


def _late(rewriter: Rewriter, tensor: Tensor, backward: float) -> set[Node]:
    """Who reads the tensor, itself or as a view, in the backward part."""
    late: set[Node] = set()
    for reader in rewriter.readers.get(tensor, []):
        view = reader.op.view_input
        if view is not None and reader.inputs[view] is tensor:
            shown = reader.outputs[0]
            late |= _late(rewriter, shown, backward)
            if shown in rewriter.keep:
                late.add(reader)
        elif rewriter.position[reader] > backward:
            late.add(reader)
    return late


def _replace(rewriter: Rewriter, y: Tensor, maker: Node, masks: list[Node]) -> None:
    made: dict[tuple[float, float | None], Tensor] = {}
    for mask in masks:
        limits = bounds(mask)
        assert limits is not None
        if limits not in made:
            op = ActiveBits(*limits)
            made[limits] = Tensor(f"active({y.name})", op.infer(y.type))
            rewriter.insert(Node(op, [y], [made[limits]]), rewriter.position[maker] + 1 / 128)
        masked = Node(
            PassActive(), [mask.inputs[0], made[limits]], list(mask.outputs), carried={"members": [mask]}
        )
        rewriter.replace([mask], masked)
