"""Whether a model that holds integers is trained in them."""

from __future__ import annotations

from circle_train.ir import DType, Graph, Node, Tensor
from circle_train.ops.internal.integers.quantized import Quantized

BYTES = (DType.INT8, DType.UINT8)


def is_learned_on_grid(graph: Graph) -> bool:
    """Whether it has weights in integers, and no head of floats behind them, which is trained alone."""
    behind: set[Tensor] = set()
    has_integers = has_floats = goes_on = False
    for node in graph.nodes:
        is_float, is_behind = _has_float_weights(node), any(t in behind for t in node.inputs)
        if isinstance(node.op, Quantized) and _weights(node):
            has_integers, goes_on = True, goes_on or is_behind
        has_floats |= is_float
        if is_float or is_behind:
            behind.update(node.outputs)
    return has_integers and (goes_on or not has_floats)


def _weights(node: Node) -> list[int]:
    """Places of constants in bytes that the operator calls weights."""
    op = node.op.of if isinstance(node.op, Quantized) else node.op
    return [
        i for i, t in enumerate(node.inputs)
        if t is not None and t.is_constant and t.dtype in BYTES and op.input_name(i) in op.parameters and op.scalar_parameters
    ]  # fmt: skip


def _has_float_weights(node: Node) -> bool:
    return not isinstance(node.op, Quantized) and node.op.scalar_parameters and any(
        t is not None and t.is_constant and t.dtype.is_float and node.op.input_name(i) in node.op.parameters
        for i, t in enumerate(node.inputs)
    )  # fmt: skip
