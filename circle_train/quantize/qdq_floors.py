"""Masks of an ONNX model: below what the numbers of attention need not be told apart (see floors.py)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from circle_train.quantize.floors import DEPTH
from circle_train.quantize.qdq import KEEPING, Qdq


def weighed_rows(qdq: Qdq) -> list[str]:
    """What a Softmax makes shares of, row by row."""
    return list(dict.fromkeys(node.input[0] for node in qdq.graph.node if _is_by_rows(qdq, node)))


def floors(qdq: Qdq, tops: Mapping[str, float], highs: Mapping[str, float]) -> dict[str, float]:
    """By tensor, where all that read it end in a Softmax."""
    found: dict[str, float] = {}
    for node in reversed(qdq.graph.node):
        for name in dict.fromkeys(node.input):
            if name and name not in qdq.outputs:
                told = [_floor(qdq, reader, name, found, tops, highs) for reader in qdq.readers.get(name, [])]
                if told and None not in told:
                    found[name] = min(floor for floor in told if floor is not None)
    return found


def _floor(
    qdq: Qdq, node: Any, name: str, found: Mapping[str, float], tops: Mapping[str, float], highs: Mapping[str, float]
) -> float | None:  # fmt: skip
    """What this reader need not be told apart."""
    if _is_by_rows(qdq, node):
        return tops[name] - DEPTH if name in tops else None
    if node.op_type in KEEPING:
        return found.get(node.output[0])
    if node.op_type == "Add" and node.output[0] in found:
        others = [_high(qdq, other, highs) for other in node.input if other != name]
        return None if len(others) != 1 or others[0] is None else found[node.output[0]] - max(others[0], 0.0)
    return None


def _high(qdq: Qdq, name: str, highs: Mapping[str, float]) -> float | None:
    """The largest number, where it is known."""
    return float(qdq.values(name).max(initial=0.0)) if name in qdq.held else highs.get(name)


def _is_by_rows(qdq: Qdq, node: Any) -> bool:
    """Whether shares are taken along the last axis, as the standard has it unless told otherwise."""
    return bool(node.op_type == "Softmax" and qdq.attribute(node, "axis", -1) == -1)
