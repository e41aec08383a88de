"""The static memory plan: where every intermediate tensor lies in one arena, decided before anything runs."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from circle_train.ir import Graph, Tensor
from circle_train.ir.lifetimes import Block, Order, lifetimes
from circle_train.ir.tensor_type import Array
from circle_train.record import mutable


@mutable
class MemoryPlan:
    """Blocks, the block of every arena tensor, and the views of what lies outside the arena."""

    blocks: list[Block]
    block_of: dict[Tensor, Block]
    views: dict[Tensor, Tensor]
    """Tensors that share the memory of a constant, a state or an input."""
    nbytes: int

    def offset(self, tensor: Tensor) -> int:
        return self.block_of[tensor].offset


def plan_memory(graph: Graph | Order, keep: Iterable[Tensor]) -> MemoryPlan:
    """Lifetimes, then sharing (views and in-place), then offsets."""
    blocks, views = lifetimes(graph, keep)
    unique = list(dict.fromkeys(blocks.values()))
    return MemoryPlan(unique, blocks, views, place(unique))


FEW = 16
"""Pieces that are gone through one by one sooner than all at once."""


def place(blocks: list[Block]) -> int:
    """Give every block the lowest offset that no simultaneously living block occupies; largest first."""
    placed = np.zeros((4, len(blocks)), np.int64)  # by offset
    first, last, start, end = placed
    total = 0
    for count, block in enumerate(sorted(blocks, key=lambda b: (-b.nbytes, b.first))):
        alive = np.flatnonzero((first[:count] <= block.last) & (last[:count] >= block.first))
        block.offset = _lowest(start[alive], end[alive], block.nbytes)
        total = max(total, block.offset + block.nbytes)
        at = int(np.searchsorted(start[:count], block.offset))
        placed[:, at + 1 : count + 1] = placed[:, at:count]
        placed[:, at] = block.first, block.last, block.offset, block.offset + block.nbytes
    return total


def _lowest(starts: Array, ends: Array, nbytes: int) -> int:
    """The lowest offset of so many bytes between pieces that lie in the order of their starts."""
    if len(starts) < FEW:
        free = 0
        for first, last in zip(starts.tolist(), ends.tolist(), strict=True):
            if first - free >= nbytes:
                break
            free = max(free, last)
        return free
    reached = np.maximum.accumulate(ends)
    before = np.concatenate(([0], reached[:-1]))
    gaps = np.flatnonzero(starts - before >= nbytes)
    return int(before[gaps[0]]) if len(gaps) else int(reached[-1])
