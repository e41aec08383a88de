"""Batched products read and write transposed tensors where they lie."""

from __future__ import annotations

from circle_train.backends.native.fusion.rewriter import Rewriter, fused_node
from circle_train.ir import DType, Node, Tensor
from circle_train.ops.internal.bfloat16 import RoundedBatchMatMul
from circle_train.ops.internal.fused import Fused
from circle_train.ops.internal.gradient import Gradient
from circle_train.ops.layers.linear import BatchMatMul
from circle_train.ops.shapes.shape import Transpose

MOST_AXES = 4


def absorb_transposes(rewriter: Rewriter) -> None:
    """TRANSPOSE before and behind a BATCH_MATMUL, or before and behind its gradients."""
    for node in rewriter.nodes():
        if not _is_product(node) or not _fits(node):
            continue
        before = {
            t: m for t in node.inputs if t is not None and (m := rewriter.producer(t)) and is_transpose(m)
        }
        twins = {t: Tensor(t.name, t.type) for t in before}
        group = [Node(m.op, list(m.inputs), [twins[t]], m.index, [m]) for t, m in before.items()]
        inputs = [None if t is None else twins.get(t, t) for t in node.inputs]
        group.append(Node(node.op, inputs, list(node.outputs), node.index, [node]))
        replaced = [node]
        behind = rewriter.only_reader(node.outputs[0])
        if behind is not None and is_transpose(behind):
            group.append(behind)
            replaced.append(behind)
        if len(group) > 1:
            made = fused_node(group, "batch_matmul", {}, [group[-1].outputs[0]], None, ())
            rewriter.replace(replaced, made)
    rewriter.drop(node for node in rewriter.nodes() if is_transpose(node))


def _is_product(node: Node) -> bool:
    op = node.op.of if isinstance(node.op, Gradient) else node.op
    return type(op) in (BatchMatMul, RoundedBatchMatMul)


def _fits(node: Node) -> bool:
    tensors = [t for t in (*node.inputs, *node.outputs) if t is not None]
    return all(t.dtype is DType.FLOAT32 and len(t.shape) <= MOST_AXES for t in tensors)


def is_transpose(node: Node) -> bool:
    op = node.op.of if isinstance(node.op, Gradient) else node.op
    return (
        type(op) is Transpose
        and not isinstance(node.op, Fused)
        and all(t is None or t.is_constant for t in node.inputs[1:])
    )
