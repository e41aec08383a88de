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

MOST_NODES = 1 << 12
"""That a loop is written out in; longer ones are loops in files, and written out by programs that train them."""


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
        condition, *results = c.branch(body, bound_to(body, bound))
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
    return [*states, *(stacked(b, list(column), 0) for column in zip(*made, strict=True) if scans)]


def bound_to(body: Any, tensors: Sequence[Tensor]) -> dict[str, Tensor]:
    """The body's inputs by name."""
    names = [info.name for info in body.input]
    return dict(zip(names, tensors, strict=True))


def stacked(b: Builder, parts: Sequence[Tensor], axis: int) -> Tensor:
    return b("PACK", *parts, values_count=len(parts), axis=front(axis, parts[0].type.rank + 1))
