"""StableHLO's windows: a graph says what becomes of the numbers in each."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import field

import numpy as np

from circle_train.errors import UnsupportedOpError
from circle_train.ir import DType, TensorType
from circle_train.ir.tensor_type import Array
from circle_train.ops.attributes import ReduceWindowFunction
from circle_train.ops.axes import Mixes
from circle_train.ops.base import Example, random, register
from circle_train.ops.control.subgraph import WithGraphs
from circle_train.ops.numeric.arithmetic import Add, Maximum, Minimum, Mul
from circle_train.ops.numeric.logic import LogicalAnd, LogicalOr
from circle_train.ops.seldom.stablehlo import combining, only_operator
from circle_train.ops.seldom.windows import ReduceWindow, StablehloPad
from circle_train.record import record

OF_BODY = {
    "ADD": ReduceWindowFunction.ADD,
    "MUL": ReduceWindowFunction.MUL,
    "MINIMUM": ReduceWindowFunction.MINIMUM,
    "MAXIMUM": ReduceWindowFunction.MAXIMUM,
    "LOGICAL_AND": ReduceWindowFunction.ALL,
    "STABLEHLO_AND": ReduceWindowFunction.ALL,
    "LOGICAL_OR": ReduceWindowFunction.ANY,
    "STABLEHLO_OR": ReduceWindowFunction.ANY,
}


@register("STABLEHLO_REDUCE_WINDOW", "StablehloReduceWindowOptions")
@record
class StablehloReduceWindow(WithGraphs):
    """REDUCE_WINDOW of elements drawn apart and padded with `start`; the graph says how two numbers become one."""

    window_dimensions: tuple[int, ...] = ()
    window_strides: tuple[int, ...] = ()
    base_dilations: tuple[int, ...] = ()
    window_dilations: tuple[int, ...] = ()
    padding: tuple[int, ...] = ()
    """Before and behind, axis by axis; less than nothing cuts off."""
    body_subgraph_index: int = field(default=0, compare=False)

    graph_options = ("body_subgraph_index",)
    axes = Mixes("windows lie over every axis")

    @property
    def steps(self) -> tuple[StablehloPad, ReduceWindow]:
        """Drawing apart and padding, then reducing."""
        function = OF_BODY.get(only_operator(self.graphs[0]))
        if function is None:
            raise UnsupportedOpError(
                f"{self.name}: reduces by '{self.graphs[0].name}', expected one sum, product, maximum, minimum, and or or"
            )
        between = tuple(step - 1 for step in self.base_dilations)
        return StablehloPad(self.padding[::2], self.padding[1::2], between), ReduceWindow(function)

    @property
    def windows(self) -> list[Array]:
        """What the second step takes as operands."""
        lists = self.window_dimensions, self.window_strides, self.window_dilations
        return [np.array(numbers, np.int64) for numbers in lists]

    def infer(self, x: TensorType, start: TensorType) -> TensorType:
        pad, reduce = self.steps
        operands = [TensorType(DType.INT64, numbers.shape, numbers) for numbers in self.windows]
        return reduce.infer(pad.infer(x, start), start, *operands)

    def forward(self, x: Array, start: Array) -> Array:
        pad, reduce = self.steps
        return reduce.forward(pad.forward(x, start), start, *self.windows)

    def grad_x(self, dy: Array, x: Array, start: Array) -> Array:
        pad, reduce = self.steps
        return pad.grad_x(reduce.grad_x(dy, pad.forward(x, start), start, *self.windows), x.shape)

    @classmethod
    def examples(cls) -> Iterable[Example]:
        ones, edges = (1, 1), (1, 0, 0, 2)
        for op, start in ((Add(), 0.0), (Mul(), 1.0), (Maximum(), -2.0), (Minimum(), 2.0), (Add(), 0.5)):
            for rest in (
                ((2, 3), (1, 2), ones, ones, edges),
                ((2, 2), (2, 1), (2, 1), (1, 2), (0, 1, -1, 0)),
            ):
                given = cls((combining(op),), *rest)
                yield Example(given, (random(5, 7), np.array(start)), constant=(1,))
        truth = random(4, 4) > 0
        for either, first in ((LogicalAnd(), True), (LogicalOr(), False)):
            given = cls((combining(either, DType.BOOL),), (2, 2), ones, ones, ones, (0, 0, 0, 0))
            yield Example(given, (truth, np.array(first)))
