"""Every operator and gradient where an extent is 0, 1, or beside a vector's, or an operand is another: as specified."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Iterable, Iterator
from dataclasses import replace

import numpy as np
import pytest
from near.operands import otherwise, recorded
from single_operator import every_example, every_operator
from test_backends import graph_of, run_graph

from circle_train.backends import native
from circle_train.backends.base import Reference
from circle_train.backends.native import Native
from circle_train.backends.native.engine.abi import Tier
from circle_train.backends.native.engine.binding import GRADIENTS, OPS
from circle_train.errors import CircleTrainError
from circle_train.ops import REGISTRY, Example, Op

pytestmark = [
    pytest.mark.skipif(not native.is_available(), reason="the native engine was not built"),
    pytest.mark.filterwarnings("ignore:Mean of empty slice"),
]


def resized(example: Example, values: Iterable[int]) -> Iterator[tuple[str, Example]]:
    """The example with one of its extents, wherever it occurs, as each of the values."""
    known = {extent for value in example.inputs if value is not None for extent in value.shape}
    for before, after in itertools.product(sorted(known), values):
        inputs = list(example.inputs)
        for i, value in enumerate(inputs):
            if value is not None and value.dtype.kind == "f":
                inputs[i] = np.resize(
                    value, [after if extent == before else extent for extent in value.shape]
                )
        yield f"{before} is {after}", replace(example, inputs=tuple(inputs))


BOUND = {*OPS, *(op for op, _ in GRADIENTS)}
VALUES = (0, 1, 7, 15, 16, 17)
MANY = 50_000
"""Numbers of an example: with more, the specification's loops take seconds (a kernel of 15×15 positions and channels)."""


def is_specified(example: Example) -> bool:
    """Whether the specification has a result for such extents."""
    try:
        run_graph(*graph_of(example), Reference(), joined=False)
    except (CircleTrainError, ValueError, IndexError):
        return False
    return True


def check(example: Example, values: Iterable[int], numbers: range) -> None:
    engine = Native(2)
    for what, changed in resized(example, values):
        size = sum(value.size for value in changed.inputs if value is not None)
        if size not in numbers or not is_specified(changed):
            continue
        for joined in (False, True):
            _, worst = run_graph(*graph_of(changed), engine, joined)
            assert worst < 4e-5, f"{what} joined={joined}: {worst}"


@every_operator
def test_engine_where_an_extent_is_0(cls: type[Op]) -> None:
    for example in itertools.islice(cls.examples(), 1):
        check(example, [0], range(sys.maxsize))


@every_operator
def test_engine_where_an_operand_is_another(cls: type[Op]) -> None:
    """A binder that takes what its kernel does not compute, of another type or broadcast otherwise, gives something else; one
    that takes less leaves to numpy what is computed natively."""
    engine, counts = Native(1, Tier.PORTABLE), dict[str, list[int]]()
    for example in cls.examples() if BOUND & {cls} else ():
        for place, value in enumerate(example.inputs):
            operand = example.op.input_name(place)
            for what, changed in [] if value is None else otherwise(value):
                inputs = [changed if i == place else other for i, other in enumerate(example.inputs)]
                found = replace(example, inputs=tuple(inputs))
                try:
                    count, worst = run_graph(*graph_of(found), engine, joined=False)
                except (CircleTrainError, ValueError, IndexError):
                    assert not is_specified(found)
                else:
                    counts.setdefault(operand, [0])[0] += count
                    assert worst < 4e-5, f"{operand} {what}: {worst}"
    assert counts == recorded("computed_natively", cls.name, counts)


def test_sums_that_broadcast_to_nothing_are_nothing() -> None:
    """It ended the process: an axis of nothing along which one operand is the same number."""
    x, y = np.zeros((3, 1)), np.zeros((1, 0))
    assert run_graph(*graph_of(Example(REGISTRY["ADD"](), (x, y))), Native(1), joined=False) == (1, 0.0)


@pytest.mark.slow
@every_example
def test_engine_at_every_extent(example: Example) -> None:
    check(example, VALUES, range(MANY))


@pytest.mark.slow
@pytest.mark.thorough
@every_example
def test_engine_at_every_extent_where_that_is_much(example: Example) -> None:
    check(example, VALUES, range(MANY, sys.maxsize))
