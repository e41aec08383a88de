"""The static memory plan: where every intermediate tensor lies in one arena, decided before anything runs."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from circle_train.ir import Graph, Tensor
from circle_train.ir.lifetimes import Block, Order, lifetimes


@dataclass
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


def place(blocks: list[Block]) -> int:
    """Give every block the lowest offset that no simultaneously living block occupies; largest first."""
    placed: list[Block] = []
    total = 0
    for block in sorted(blocks, key=lambda b: (-b.nbytes, b.first)):
        offset = 0
        for other in placed:
            if other.offset + other.nbytes <= offset or not block.overlaps(other):
                continue
            if other.offset >= offset + block.nbytes:
                break
            offset = other.offset + other.nbytes
        block.offset = offset
        total = max(total, offset + block.nbytes)
        _insert(placed, block)
    return total


def _insert(placed: list[Block], block: Block) -> None:
    """Keep the placed blocks sorted by offset."""
    low, high = 0, len(placed)
    while low < high:
        middle = (low + high) // 2
        if placed[middle].offset < block.offset:
            low = middle + 1
        else:
            high = middle
    placed.insert(low, block)
