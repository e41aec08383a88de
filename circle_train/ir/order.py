"""An order in which nodes can run."""

from __future__ import annotations

import heapq
from collections.abc import Sequence, Set

from circle_train.errors import ModelError
from circle_train.ir.node import Node


def in_order(nodes: Sequence[Node]) -> list[Node]:
    """Each node behind the makers of what it reads, otherwise as they were; a cycle is a ModelError."""
    makers = {tensor: number for number, node in enumerate(nodes) for tensor in node.outputs}
    needed = [{makers[t] for t in node.inputs if t in makers} for node in nodes]
    found = order_of(needed)
    if len(found) < len(nodes):
        stuck = nodes[min(set(range(len(nodes))) - set(found))]
        raise ModelError(f"{stuck}: waits for its own result, the graph has a cycle; the file is damaged")
    return [nodes[number] for number in found]


def order_of(needed: Sequence[Set[int]]) -> list[int]:
    """Numbers, each behind those that it needs, otherwise as counted; those of cycles, and what waits for them, are missing."""
    if all(max(before, default=-1) < number for number, before in enumerate(needed)):
        return list(range(len(needed)))
    readers: list[list[int]] = [[] for _ in needed]
    for number, before in enumerate(needed):
        for maker in before:
            readers[maker].append(number)
    waiting = [len(before) for before in needed]
    ready = [number for number, count in enumerate(waiting) if not count]
    order = []
    while ready:
        number = heapq.heappop(ready)
        order.append(number)
        for reader in readers[number]:
            waiting[reader] -= 1
            if not waiting[reader]:
                heapq.heappush(ready, reader)
    return order
