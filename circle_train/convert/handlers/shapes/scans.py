"""Scan: written out where its length is known and small, else a loop that counts to it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from circle_train.convert.building.builder import Builder
from circle_train.convert.building.registry import Call, front, handles
from circle_train.convert.handlers.shapes.decided import decided
from circle_train.convert.handlers.shapes.loops import MOST_NODES, bound_to, stacked
from circle_train.ir import DType, Tensor
from circle_train.ir.size import Size

TURN, GOES_ON = "scan:turn", "scan:goes on"
"""What a loop's body is given besides its states."""


@dataclass(frozen=True)
class Scanned:
    """A tensor that is taken apart along an axis, from its last entry on if `backwards`."""

    tensor: Tensor
    axis: int
    backwards: bool

    def entries(self, b: Builder, length: int) -> list[Tensor]:
        parts = b.all("UNPACK", self.tensor, num=length, axis=self.axis)
        return parts[::-1] if self.backwards else parts

    def entry(self, b: Builder, turn: Tensor, last: Tensor) -> Tensor:
        """The one of this turn."""
        at = b("SUB", last, turn) if self.backwards else turn
        return b("GATHER", self.tensor, at, axis=self.axis, batch_dims=0)


@dataclass(frozen=True)
class Name:
    name: str


@dataclass(frozen=True)
class Body:
    """A graph with a loop's inputs and outputs."""

    input: Sequence[Any]
    output: Sequence[Any]
    node: Sequence[Any]


@handles("Scan", since=9)
def scan(c: Call) -> list[Tensor]:
    """The body for every entry of the scanned axes."""
    b, count = c.b, int(c.required("num_scan_inputs"))
    tensors = [c[i] for i in range(len(c.inputs))]
    states = tensors[: len(tensors) - count]
    facts = zip(
        tensors[len(states) :],
        _each(c, "scan_input_axes", count),
        _each(c, "scan_input_directions", count),
        strict=True,
    )
    scanned = [Scanned(t, front(axis, t.type.rank), bool(turned)) for t, axis, turned in facts]
    length = b.shape(scanned[0].tensor)[scanned[0].axis]
    nodes = len(c.required("body").node)
    is_long = isinstance(length, Size) or length * nodes > MOST_NODES or not length
    states, outputs = (_counted if is_long else _written_out)(c, states, scanned, length)
    turned = _each(c, "scan_output_directions", len(outputs))
    places = _each(c, "scan_output_axes", len(outputs))
    return [*states, *(_placed(b, *each) for each in zip(outputs, turned, places, strict=True))]


def _written_out(
    c: Call, states: list[Tensor], scanned: Sequence[Scanned], length: int
) -> tuple[list[Tensor], list[Tensor]]:
    """The last states, and what is made, stacked along the first axis."""
    assert c.branch is not None
    body, made = c.required("body"), []
    for step in zip(*(one.entries(c.b, length) for one in scanned), strict=True):
        results = c.branch(body, bound_to(body, [*states, *step]))
        states = results[: len(states)]
        made.append(results[len(states) :])
    return states, [stacked(c.b, list(column), 0) for column in zip(*made, strict=True)]


def _counted(
    c: Call, states: list[Tensor], scanned: Sequence[Scanned], length: int
) -> tuple[list[Tensor], list[Tensor]]:
    """The same as a loop whose turns take an entry each."""
    ask, body, b = c.branch, c.required("body"), c.b
    assert ask is not None
    last = b.reshape(b.integers([length - 1]), ())
    names = [info.name for info in body.input]

    def branch(_: Any, given: Mapping[str, Tensor], inside: Builder) -> list[Tensor]:
        turn = inside.cast(given[TURN], DType.INT32)
        rows = [one.entry(inside, turn, last) for one in scanned]
        kept = {name: given[name] for name in names[: len(states)]}
        made = ask(body, kept | dict(zip(names[len(states) :], rows, strict=True)), inside)
        return [inside.constant(True), *made]

    view = Body(
        [Name(TURN), Name(GOES_ON), *body.input[: len(states)]], [Name(GOES_ON), *body.output], body.node
    )
    trips = b.reshape(b.integers([length], np.int64), ())
    call = replace(c, op="Loop", inputs=[trips, None, *states], attributes={"body": view}, branch=branch)
    results = decided(call)
    return results[: len(states)], results[len(states) :]


def _placed(b: Builder, made: Tensor, is_turned: int, axis: int) -> Tensor:
    """What a scan has stacked, along the axis and in the order that are asked for."""
    rank = made.type.rank
    y = b("REVERSE_V2", made, b.integers([0])) if is_turned else made
    order = list(range(1, rank))
    order.insert(front(axis, rank), 0)
    return b.transpose(y, order)


def _each(c: Call, name: str, count: int) -> list[int]:
    return [int(value) for value in c.attr(name) or [0] * count]
