"""Loops of known length, written out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from circle_train.convert.building.builder import Builder
from circle_train.convert.building.refusal import Refusal
from circle_train.convert.building.registry import Call, front, handles
from circle_train.convert.handlers.shapes.decided import decided
from circle_train.ir import Tensor
from circle_train.ir.size import Size

MOST_NODES = 1 << 12
"""That a loop is written out in; longer ones are loops in files, and written out by programs that train them."""


@handles("Scan", since=9)
def scan(c: Call) -> list[Tensor]:
    """The body for every entry of the scanned axes."""
    assert c.branch is not None
    b, body, count = c.b, c.required("body"), int(c.required("num_scan_inputs"))
    tensors = [c[i] for i in range(len(c.inputs))]
    states, scanned = tensors[: len(tensors) - count], tensors[len(tensors) - count :]
    axes = [front(a, t.type.rank) for a, t in zip(_each(c, "scan_input_axes", count), scanned, strict=True)]
    lengths = [b.shape(t)[axis] for t, axis in zip(scanned, axes, strict=True)]
    length = lengths[0]
    if isinstance(length, Size) or length * len(body.node) > MOST_NODES or not length:
        raise Refusal(
            f"it runs over {length} entries, which is not known beforehand or too many to be written out"
        )
    entries = []
    for tensor, axis, backwards in zip(scanned, axes, _each(c, "scan_input_directions", count), strict=True):
        parts = b.all("UNPACK", tensor, num=length, axis=axis)
        entries.append(parts[::-1] if backwards else parts)
    made: list[list[Tensor]] = []
    for step in zip(*entries, strict=True):
        results = c.branch(body, _bound(body, [*states, *step]))
        states = results[: len(states)]
        made.append(results[len(states) :])
    outputs = [list(column) for column in zip(*made, strict=True)]
    turned = _each(c, "scan_output_directions", len(outputs))
    places = _each(c, "scan_output_axes", len(outputs))
    return [
        *states,
        *(_stacked(b, o[::-1] if t else o, a) for o, t, a in zip(outputs, turned, places, strict=True)),
    ]


@handles("Loop")
def loop(c: Call) -> list[Tensor]:
    """The body as often as the trip count says, or until its condition is known to be false."""
    assert c.branch is not None
    b, body = c.b, c.required("body")
    most, go_on = (None if c.optional(i) is None else b.value(c.optional(i)) for i in (0, 1))
    if (c.optional(0) is not None and most is None) or (c.optional(1) is not None and go_on is None):
        return decided(c)
    states = [c[i] for i in range(2, len(c.inputs))]
    made: list[list[Tensor]] = []
    turns = MOST_NODES // max(len(body.node), 1) + 1
    count = turns if most is None else min(int(most.reshape(-1)[0]), turns)
    going = go_on is None or bool(go_on.reshape(-1)[0])
    for number in range(count):
        if not going:
            break
        bound = [b.constant(number, np.int64), b.constant(True), *states]
        condition, *results = c.branch(body, _bound(body, bound))
        states = results[: len(states)]
        made.append(results[len(states) :])
        known = b.value(condition)
        if known is None:
            return decided(c)
        going = bool(known.reshape(-1)[0])
    else:
        if count == turns and going:
            return decided(c)
    scans = len(body.output) - 1 - len(states)
    if scans and not made:
        raise Refusal("it does not run once, so that its results have no shape")
    return [*states, *(_stacked(b, list(column), 0) for column in zip(*made, strict=True) if scans)]


def _each(c: Call, name: str, count: int) -> list[int]:
    return [int(value) for value in c.attr(name) or [0] * count]


def _bound(body: Any, tensors: Sequence[Tensor]) -> dict[str, Tensor]:
    """The body's inputs by name."""
    names = [info.name for info in body.input]
    return dict(zip(names, tensors, strict=True))


def _stacked(b: Builder, parts: Sequence[Tensor], axis: int) -> Tensor:
    return b("PACK", *parts, values_count=len(parts), axis=front(axis, parts[0].type.rank + 1))
