"""Elementwise nodes that feed each other, as one pass over memory."""

from __future__ import annotations

from circle_train.backends.native.binders.chain import is_bits, walked_shape
from circle_train.backends.native.binders.elementwise import BITWISE, is_elementwise
from circle_train.backends.native.engine.abi import CHAIN_REGISTERS
from circle_train.backends.native.fusion.rewriter import Rewriter
from circle_train.ir import DType, Node, Tensor
from circle_train.ops.internal.fused import Fused
from circle_train.ops.internal.gradient import Gradient
from circle_train.ops.internal.sum_to import SumTo

MOST_INPUTS = CHAIN_REGISTERS // 2
MOST_OUTPUTS = 4
LONGEST, WIDEST = 256, 64
"""Operations of a chain, and readers of what a part of it gives: each joining looks at all of them once more."""


def split_broadcasts(rewriter: Rewriter) -> None:
    """Gradients of broadcast operands: the elementwise part, and the sum that undoes the broadcast."""
    for node in rewriter.nodes():
        op = node.op
        if not isinstance(op, Gradient) or not is_elementwise(op) or not _computable(node):
            continue
        dy = node.inputs[0]
        assert dy is not None
        if dy.shape == op.type.shape or len(op.counts) == 1:
            continue
        whole = Tensor(f"whole({node.outputs[0].name})", dy.type.with_shape(dy.shape))
        gradient = Gradient(op.of, op.wrt, whole.type, op.counts, op.shapes, op.work, op.source)
        first = Node(gradient, list(node.inputs), [whole], members=[node])
        rewriter.replace([node], first, Node(SumTo(op.type.shape), [whole], list(node.outputs), members=[]))


def join_chains(rewriter: Rewriter) -> None:
    """Contract each elementwise node with the makers of its inputs, as long as registers last."""
    for node in rewriter.nodes():
        if node not in rewriter or not is_link(node):
            continue
        current, shape = node, _walked(node)
        for tensor in list(node.inputs):
            maker = rewriter.producer(tensor)
            if tensor is None or maker is None or maker is current or tensor.shape != shape:
                continue
            if not is_link(maker):
                continue
            results = _results(rewriter, maker, current)
            if results is not None:
                current = _contract(rewriter, maker, current, results) or current


def _contract(rewriter: Rewriter, maker: Node, node: Node, results: list[Tensor]) -> Node | None:
    shape = _walked(node)
    same = [t for t in _inputs(maker, node) if t.shape == shape and t.dtype is DType.FLOAT32]
    return rewriter.fuse([maker, node], "chain", {}, results, None, same)


def _results(rewriter: Rewriter, maker: Node, node: Node) -> list[Tensor] | None:
    """What the contracted node must give, or None if the contraction is not possible."""
    if len(_inputs(maker, node)) > MOST_INPUTS or _length(maker) + _length(node) > LONGEST:
        return None
    others: list[Tensor] = []
    for out in maker.outputs:
        readers = rewriter.readers(out)
        if len(readers) > WIDEST:
            return None
        outside = [r for r in readers if r is not node]
        if out in rewriter.keep or outside:
            if any(rewriter.is_before(r, node) for r in outside):
                return None
            others.append(out)
    results = sorted([*node.outputs, *others], key=is_bits)
    return results if len(results) <= MOST_OUTPUTS else None


def _length(node: Node) -> int:
    return len(node.op.parts) if isinstance(node.op, Fused) else 1


def _inputs(maker: Node, node: Node) -> list[Tensor]:
    """What the contracted node reads."""
    read = dict.fromkeys(t for n in (maker, node) for t in n.inputs if t is not None)
    return [t for t in read if t not in maker.outputs]


def is_link(node: Node) -> bool:
    """Whether the node may be part of a chain."""
    if isinstance(node.op, Fused):
        return node.op.kernel == "chain"
    if not is_elementwise(node.op) or not _computable(node) or not node.outputs:
        return False
    out = node.outputs[0].shape
    return not isinstance(node.op, Gradient) or any(t is not None and t.shape == out for t in node.inputs)


def _walked(node: Node) -> tuple[int, ...]:
    return walked_shape([*node.outputs, *(t for t in node.inputs if t is not None)])


def _computable(node: Node) -> bool:
    """Registers hold floats, of memory also bfloat16s; truth values may only choose, and are bits where they are kept."""
    if isinstance(node.op, BITWISE):
        return all(t is not None and t.dtype in (DType.FLOAT32, DType.UINT8) for t in node.inputs)
    allowed = (DType.FLOAT32, DType.BOOL, DType.UINT16)
    tensors = [t for t in (*node.inputs, *node.outputs) if t is not None]
    return all(t.dtype in allowed for t in tensors) and all(
        t.dtype in (DType.FLOAT32, DType.UINT16) for t in node.outputs
    )
