"""StableHLO's windows: elements drawn apart, padded, and reduced window by window along every axis."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import product

import numpy as np

from circle_train.errors import ModelError
from circle_train.ir import TensorType
from circle_train.ir.tensor_type import Array
from circle_train.ops.attributes import ReduceWindowFunction
from circle_train.ops.axes import Mixes
from circle_train.ops.base import Example, Op, random, register
from circle_train.ops.checks import vector
from circle_train.ops.elementwise import same_dtype
from circle_train.ops.movement import Movement, placed
from circle_train.record import record

Places = tuple[slice, ...]
OF_WINDOWS = {
    ReduceWindowFunction.ADD: np.add,
    ReduceWindowFunction.MUL: np.multiply,
    ReduceWindowFunction.MINIMUM: np.minimum,
    ReduceWindowFunction.MAXIMUM: np.maximum,
    ReduceWindowFunction.ALL: np.logical_and,
    ReduceWindowFunction.ANY: np.logical_or,
}


def apart(size: int, step: int) -> int:
    """How long an axis becomes when its elements stand that far apart."""
    return (size - 1) * step + 1 if size > 0 else size


@register("DILATE", "DilateOptions")
class Dilate(Movement):
    """Elements drawn apart, with one value between them."""

    invents = True
    axes = Mixes("elements move along every axis")
    static_inputs = ("dilations",)

    def infer(self, x: TensorType, dilations: TensorType, value: TensorType) -> TensorType:
        same_dtype(self.name, x, value)
        steps = vector(self.name, "dilations", dilations, x.rank)
        if steps is None:
            return TensorType(x.dtype, (-1,) * x.rank)
        if min(steps, default=1) < 1:
            raise ModelError(f"{self.name}: dilations are {steps}, expected numbers of at least 1")
        return TensorType(x.dtype, tuple(apart(*pair) for pair in zip(x.shape, steps, strict=True)))

    def forward(self, x: Array, dilations: Array, value: Array) -> Array:
        sizes = [apart(*pair) for pair in zip(x.shape, dilations.tolist(), strict=True)]
        y = np.full(sizes, value.reshape(()), x.dtype)
        y[self.places(dilations)] = x
        return y

    @staticmethod
    def places(dilations: Array) -> Places:
        return tuple(slice(None, None, step) for step in dilations.tolist())

    def grad_x(self, dy: Array, dilations: Array) -> Array:
        return dy[self.places(dilations)]

    def grad_value(self, dy: Array, dilations: Array, value_shape: tuple[int, ...]) -> Array:
        return (dy.sum() - self.grad_x(dy, dilations).sum()).reshape(value_shape)

    @classmethod
    def examples(cls) -> Iterable[Example]:
        for shape, steps in (((3, 4), (2, 3)), ((5,), (1,)), ((2, 1, 3), (4, 2, 1))):
            yield Example(cls(), (random(*shape), np.array(steps, np.int32), random(seed=1)))
        yield Example(cls(), (np.ones((2, 2), np.int32), np.array([2, 2], np.int32), np.array(-1, np.int32)))


@register("STABLEHLO_PAD", "StablehloPadOptions")
@record
class StablehloPad(Movement):
    """Elements drawn apart, and edges that are added or, where negative, cut off."""

    edge_padding_low: tuple[int, ...] = ()
    edge_padding_high: tuple[int, ...] = ()
    interior_padding: tuple[int, ...] = ()

    invents = True
    axes = Mixes("elements move along every axis")

    def infer(self, x: TensorType, value: TensorType) -> TensorType:
        same_dtype(self.name, x, value)
        edges = self.edge_padding_low, self.edge_padding_high, self.interior_padding
        if any(len(numbers) != x.rank for numbers in edges) or min(self.interior_padding, default=0) < 0:
            raise ModelError(f"{self.name}: paddings are {edges}, expected one of each for the axes of {x}")
        if not x.is_static:
            return TensorType(x.dtype, (-1,) * x.rank)
        sizes = [
            apart(n, between + 1) + low + high for n, low, high, between in zip(x.shape, *edges, strict=True)
        ]
        if min(sizes, default=0) < 0:
            raise ModelError(f"{self.name}: it cuts more off {x} than there is: {sizes}")
        return TensorType(x.dtype, tuple(sizes))

    def where(self, shape: Sequence[int], of: Sequence[int]) -> tuple[Places, Places]:
        """The elements that stay, in x and in the result."""
        inner, outer = [], []
        steps = [between + 1 for between in self.interior_padding]
        for n, size, low, step in zip(shape, of, self.edge_padding_low, steps, strict=True):
            first = max(0, -(low // step))
            last = min(n, -(-(size - low) // step))
            inner.append(slice(first, max(first, last)))
            outer.append(slice(low + first * step, max(low + (last - 1) * step + 1, 0), step))
        return tuple(inner), tuple(outer)

    def forward(self, x: Array, value: Array) -> Array:
        edges = self.edge_padding_low, self.edge_padding_high, self.interior_padding
        sizes = [
            apart(n, between + 1) + low + high for n, low, high, between in zip(x.shape, *edges, strict=True)
        ]
        y = np.full(sizes, value.reshape(()), x.dtype)
        inner, outer = self.where(x.shape, sizes)
        if x[inner].size:
            y[outer] = x[inner]
        return y

    def grad_x(self, dy: Array, x_shape: tuple[int, ...]) -> Array:
        inner, outer = self.where(x_shape, dy.shape)
        return placed(dy[outer], x_shape, inner)

    def grad_value(self, dy: Array, x_shape: tuple[int, ...], value_shape: tuple[int, ...]) -> Array:
        _, outer = self.where(x_shape, dy.shape)
        return (dy.sum() - dy[outer].sum()).reshape(value_shape)

    @classmethod
    def examples(cls) -> Iterable[Example]:
        for low, high, between in (
            ((1, 0), (0, 2), (0, 0)),
            ((0, 1), (1, 1), (2, 1)),
            ((-1, 1), (1, -2), (1, 0)),
        ):
            yield Example(cls(low, high, between), (random(3, 4), random(seed=1)))


@register("REDUCE_WINDOW", "ReduceWindowOptions")
@record
class ReduceWindow(Op):
    """One number for each window, which begins with `start`; windows lie inside, their elements may stand apart."""

    reduce_function: ReduceWindowFunction = ReduceWindowFunction.UNSUPPORTED

    axes = Mixes("windows lie over every axis")
    static_inputs = ("window", "strides", "dilations")

    def infer(
        self, x: TensorType, start: TensorType, window: TensorType, strides: TensorType, dilations: TensorType
    ) -> TensorType:
        same_dtype(self.name, x, start)
        if self.reduce_function not in OF_WINDOWS:
            raise ModelError(
                f"{self.name}: reduce_function is {self.reduce_function!r}, expected ADD, MUL, …"
            )
        operands = {"window": window, "strides": strides, "dilations": dilations}
        given = [vector(self.name, name, type_, x.rank) for name, type_ in operands.items()]
        if any(numbers is None for numbers in given) or not x.is_static:
            return TensorType(x.dtype, (-1,) * x.rank)
        if any(n < 1 for numbers in given for n in numbers or ()):
            raise ModelError(f"{self.name}: windows are {given}, expected numbers of at least 1")
        return TensorType(x.dtype, self.sizes(x.shape, *(tuple(numbers or ()) for numbers in given)))

    @staticmethod
    def sizes(
        shape: Sequence[int], window: Sequence[int], strides: Sequence[int], dilations: Sequence[int]
    ) -> tuple[int, ...]:
        """How many windows there are along each axis."""
        axes = zip(shape, window, strides, dilations, strict=True)
        return tuple(max(0, (n - apart(many, step)) // stride + 1) for n, many, stride, step in axes)

    def taps(self, shape: Sequence[int], window: Array, strides: Array, dilations: Array) -> Iterator[Places]:
        """For each element of a window where it lies in x, for all windows."""
        counts = self.sizes(shape, window.tolist(), strides.tolist(), dilations.tolist())
        for cell in product(*map(range, window.tolist())):
            first = [place * step for place, step in zip(cell, dilations.tolist(), strict=True)]
            ends = [
                at + (n - 1) * stride + 1
                for at, n, stride in zip(first, counts, strides.tolist(), strict=True)
            ]
            yield tuple(map(slice, first, ends, strides.tolist()))

    def forward(self, x: Array, start: Array, window: Array, strides: Array, dilations: Array) -> Array:
        sizes = self.sizes(x.shape, window.tolist(), strides.tolist(), dilations.tolist())
        y = np.full(sizes, start.reshape(()), x.dtype)
        for places in self.taps(x.shape, window, strides, dilations) if y.size else ():
            y = OF_WINDOWS[self.reduce_function](y, x[places]).astype(x.dtype)
        return y

    def grad_x(
        self, dy: Array, x: Array, start: Array, window: Array, strides: Array, dilations: Array
    ) -> Array:
        dx = np.zeros_like(x)
        places = list(self.taps(x.shape, window, strides, dilations)) if dy.size else []
        if self.reduce_function is ReduceWindowFunction.MUL:
            shares = others([x[one] for one in places], start)
        elif self.reduce_function is ReduceWindowFunction.ADD:
            shares = [np.ones_like(dy)] * len(places)
        else:
            y = self.forward(x, start, window, strides, dilations)
            chosen = [(x[one] == y).astype(dy.dtype) for one in places]
            count = np.maximum(sum(chosen, np.zeros_like(dy)), 1)
            shares = [one / count for one in chosen]
        for one, share in zip(places, shares, strict=True):
            dx[one] += dy * share
        return dx

    @classmethod
    def examples(cls) -> Iterable[Example]:
        def numbers(*values: tuple[int, ...]) -> list[Array]:
            return [np.array(value, np.int64) for value in values]

        for function, start in ((1, 0.5), (2, 1.0), (3, 2.0), (4, -2.0), (4, 0.1)):
            op = cls(ReduceWindowFunction(function))
            rest = numbers((2, 3), (1, 2), (1, 1)), numbers((2, 1), (2, 1), (2, 3))
            for windows in rest:
                yield Example(op, (random(5, 7), np.array(start), *windows), constant=(1,))
        truth = random(4, 4) > 0
        for function, first in ((5, True), (6, False)):
            windows = numbers((2, 2), (1, 1), (1, 1))
            yield Example(cls(ReduceWindowFunction(function)), (truth, np.array(first), *windows))


def others(factors: Sequence[Array], start: Array) -> list[Array]:
    """For each factor the product of the others, which exists where factors are 0."""
    before, behind = [np.full_like(factors[0], start.reshape(()))], [np.ones_like(factors[0])]
    for factor in factors[:-1]:
        before.append(before[-1] * factor)
    for factor in factors[:0:-1]:
        behind.append(behind[-1] * factor)
    return [one * two for one, two in zip(before, behind[::-1], strict=True)]
