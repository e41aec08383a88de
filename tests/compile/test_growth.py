"""What a model costs grows with the model, not with its square: a file of a megabyte is no way to stop anybody."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

import pytest
from networks import finish, make, new_input, weight

import circle_train as ct
from circle_train.data.rows import Origin, found_in, numbers_of
from circle_train.ir import Graph, Tensor


def instructions_of(act: Callable[[], object]) -> int:
    """Instructions of Python that are run: those of loops within one line too."""
    count = [0]

    def trace(frame: FrameType, event: str, argument: Any) -> Any:
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        count[0] += event == "opcode"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        act()
    finally:
        sys.settrace(before)
    return count[0]


def chain(graph: Graph, x: Tensor, count: int) -> Tensor:
    """Nothing before it is trained, so that nothing of it is kept and all of it can be one pass."""
    y = graph.inputs[0]
    for _ in range(count):
        y = graph.emit(make("TANH"), y)
    return graph.emit(make("ADD"), x, y)


def reshapes(graph: Graph, x: Tensor, count: int) -> Tensor:
    for turn in range(count):
        x = graph.emit(make("RESHAPE", new_shape=(2, 1) if turn % 2 == 0 else (1, 2)), x, None)
    return graph.emit(make("RESHAPE", new_shape=(1, 2)), x, None)


def operands(graph: Graph, x: Tensor, count: int) -> Tensor:
    return graph.emit(make("ADD_N"), *[x] * count)


def outputs(graph: Graph, x: Tensor, count: int) -> Tensor:
    graph.outputs += [x] * count
    return x


@pytest.mark.parametrize(
    "grow", [chain, reshapes, operands, pytest.param(outputs, marks=pytest.mark.slow(seconds=25))]
)
def test_twice_the_model_takes_twice_the_work(grow: Callable[[Graph, Tensor, int], Tensor]) -> None:
    """Each of these took four times as much: 3,000 operators 18 s, 4,000 operands 13 s."""

    def work(count: int) -> int:
        graph = Graph("net", [new_input("x", 1, 2)])
        y = graph.emit(make("FULLY_CONNECTED"), graph.inputs[0], weight("w", 2, 2), None)
        model = finish(graph, grow(graph, y, count))
        config = ct.TrainConfig(loss="mse", batch_size=1, trainable="all")
        return instructions_of(lambda: ct.TrainSession(model, config, threads=1).prepare())

    small = work(20)  # what is done once, however large the model
    assert work(420) - small < 2.1 * (work(220) - small)


def test_a_table_of_many_columns_is_read_in_one_pass() -> None:
    """300,000 columns took twenty minutes; numpy's and lists' own loops run no lines, so the search is counted by eye."""

    class Name(str):
        looks = 0

        def __eq__(self, other: object) -> bool:
            Name.looks += 1
            return str.__eq__(self, other) if isinstance(other, str) else NotImplemented

        __hash__ = str.__hash__

    header = [Name(f"c{i}") for i in range(400)] + [Name("label")]
    origin = found_in(header, Origin((), ("label",), None), "t.csv")
    numbers = numbers_of([["1"] * 401], header, [Name(str(name)) for name in origin.columns], "t.csv")
    assert numbers.shape == (1, 400) and Name.looks < 2_000
