"""What the nodes of an ONNX graph read and make, by name."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from circle_train.ir.order import order_of


def names_read(nodes: Iterable[Any]) -> set[str]:
    """Inputs of the nodes and of all graphs within them."""
    found: set[str] = set()
    for node in nodes:
        found.update(node.input)
        for attribute in node.attribute:
            if attribute.HasField("g"):
                found |= names_read(attribute.g.node) | {info.name for info in attribute.g.output}
    return found - {""}


def sorted_places(nodes: Sequence[Any], read: Sequence[set[str]]) -> Sequence[int]:
    """Nodes behind those that make what they read: some tools write them in any order (float16 converters their casts last)."""
    makers = {name: number for number, node in enumerate(nodes) for name in node.output if name}
    order = order_of([{makers[name] for name in names if name in makers} for names in read])
    return order if len(order) == len(nodes) else range(len(nodes))
