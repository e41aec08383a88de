"""One bit an element instead of an activation's output, where the gradient wants to know nothing else of it.

A mask that goes with an elementwise pass, or stands alone, costs no more as bits. One at the end of a product's gradient
does: the product reads outputs and no bits, so that two passes over memory are added. Those are made bits together, where
that lowers the fullest moment.
"""

from __future__ import annotations

from circle_train.backends.native.fusion.products import KERNELS
from circle_train.backends.native.fusion.rewriter import Rewriter
from circle_train.ir import DType, Node, Tensor
from circle_train.ir.lifetimes import live_bytes
from circle_train.ops.internal.active_bits import ActiveBits, PassActive
from circle_train.ops.internal.gradient import ActivationGradient, Gradient, GuardFinite
from circle_train.ops.internal.integers.on_grid import OnGrid
from circle_train.ops.numeric.activation import Clipped, Relu
from circle_train.ops.numeric.arithmetic import Add

LEAST = 1 << 14
"""Bytes: smaller outputs are kept as they are."""
WORTHWHILE = 0.9
"""Two more passes over memory are worth it where this share of the fullest moment, or less, is left."""


def keep_bits(rewriter: Rewriter) -> None:
    """Replace the masks that an activation's output is kept for alone."""
    backward = next((node for node in rewriter.nodes() if type(node.op) is GuardFinite), None)
    if backward is None:
        return
    found: dict[Tensor, list[Node]] = {}
    for node in rewriter.nodes():
        if bounds(node) is not None and node.inputs[1] is not None:
            found.setdefault(node.inputs[1], []).append(node)
    found = {y: masks for y, masks in found.items() if _is_only_for(rewriter, y, masks, backward)}
    dear = {y: masks for y, masks in found.items() if any(_ends_product(rewriter, mask) for mask in masks)}
    if dear and not _is_worthwhile(rewriter, dear, backward):
        found = {y: masks for y, masks in found.items() if y not in dear}
    for y, masks in found.items():
        _replace(rewriter, y, masks)


def bounds(node: Node) -> tuple[float, float | None] | None:
    """Between what the output must lie for the gradient to pass; None: the node is no such mask."""
    op = node.op
    if isinstance(op, ActivationGradient):
        low, high = op.kind.bounds
        return None if low is None else (low, high)
    if isinstance(op, Gradient) and isinstance(op.of, OnGrid):
        return op.of.inside
    if isinstance(op, Gradient) and op.counts == (("dy", 1), ("y", 1)):
        if isinstance(op.of, Relu):
            return 0.0, None
        if isinstance(op.of, Clipped):
            return op.of.low, op.of.high
    return None


def _is_only_for(rewriter: Rewriter, y: Tensor, masks: list[Node], backward: Node) -> bool:
    """Whether an output, of some size, is kept for these masks and nothing else."""
    if y.dtype is not DType.FLOAT32 or y.type.nbytes < LEAST or y in rewriter.keep:
        return False
    maker = rewriter.producer(y)
    return maker is not None and maker.op.view_input is None and _late(rewriter, y, backward) == set(masks)


def _ends_product(rewriter: Rewriter, mask: Node) -> bool:
    """Whether the mask would be applied by a product's gradient (see products.extend_input_gradients)."""
    dy = mask.inputs[0]
    maker = rewriter.producer(dy)
    terms = maker.inputs if maker is not None and type(maker.op) is Add else [dy]
    makers = [rewriter.producer(term) for term in terms]
    return any(m is not None and isinstance(m.op, Gradient) and type(m.op.of) in KERNELS for m in makers)


def _is_worthwhile(rewriter: Rewriter, dear: dict[Tensor, list[Node]], backward: Node) -> bool:
    """Compare the fullest moments, bits in the place of outputs from their last reader in the forward part on."""
    step = {node: i for i, node in enumerate(rewriter.nodes())}
    live = live_bytes(rewriter.graph)
    lower = [float(nbytes) for nbytes in live]
    for y, masks in dear.items():
        early = [step[n] for n in rewriter.readers(y) if step[n] < step[backward]]
        start = max(early, default=step[y.producer]) if y.producer in step else 0
        for i in range(start + 1, max(step[mask] for mask in masks)):
            lower[i] -= y.type.nbytes * 31 / 32
    return max(lower) <= WORTHWHILE * max(live)


def _late(rewriter: Rewriter, tensor: Tensor, backward: Node) -> set[Node]:
    """Who reads the tensor, itself or as a view, in the backward part."""
    late: set[Node] = set()
    for reader in rewriter.readers(tensor):
        view = reader.op.view_input
        if view is not None and reader.inputs[view] is tensor:
            shown = reader.outputs[0]
            late |= _late(rewriter, shown, backward)
            if shown in rewriter.keep:
                late.add(reader)
        elif rewriter.is_before(backward, reader):
            late.add(reader)
    return late


def _replace(rewriter: Rewriter, y: Tensor, masks: list[Node]) -> None:
    maker = rewriter.producer(y)
    assert maker is not None
    last, made = maker, dict[tuple[float, float | None], Tensor]()
    for mask in masks:
        limits = bounds(mask)
        assert limits is not None
        if limits not in made:
            op = ActiveBits(*limits)
            made[limits] = Tensor(f"active({y.name})", op.infer(y.type))
            bits = Node(op, [y], [made[limits]])
            rewriter.insert(bits, after=last)
            last = bits
        masked = Node(PassActive(), [mask.inputs[0], made[limits]], list(mask.outputs), members=[mask])
        rewriter.replace([mask], masked)
