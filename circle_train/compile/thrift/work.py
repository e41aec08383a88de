"""What running a node is expected to cost, in proportion to others: the bytes that it moves, or its arithmetic."""

from __future__ import annotations

from collections.abc import Iterable

from circle_train.compile.program import Program
from circle_train.ir import Node

FLOPS_PER_BYTE = 20
"""Operations of a product that take as long as moving a byte: 400 GFLOP/s against 20 GB/s, as measured on two cores."""
CALL = 200_000
"""What beginning a node costs, in bytes: ten microseconds, in which threads wake, weights are packed, caches fill."""


def work(node: Node) -> float:
    """Bytes read and written, or the arithmetic where that takes longer; views cost nothing."""
    if node.op.view_input is not None:
        return 0.0
    return float(CALL + max(node.nbytes, node.flops / FLOPS_PER_BYTE))


def total_work(nodes: Iterable[Node]) -> float:
    return sum(map(work, nodes))


def step_work(program: Program) -> float:
    """One run of a program, its frozen beginning included."""
    prefix = program.prefix
    parts = program.batch_size // prefix.program.batch_size if prefix else 0
    return total_work(program.graph.nodes) + (parts * step_work(prefix.program) if prefix else 0.0)
