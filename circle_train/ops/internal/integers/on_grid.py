"""Real numbers on the grid of an integer tensor, as training sees what inference computes in bytes."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np

from circle_train.ir.tensor_type import Array
from circle_train.ops.axes import Elementwise
from circle_train.ops.base import Example, Op, random, register
from circle_train.record import record


@register("ON_GRID", internal=True)
@record
class OnGrid(Op):
    """scale · (clip(round(x / scale) + zero) - zero); the gradient passes where nothing is cut off.

    Ends are inside: what rounds to them passes, as in PyTorch's fake_quantize.
    """

    scale: float = 1.0
    zero: float = 0.0
    low: float = -128.0
    high: float = 127.0

    axes = Elementwise()
    formula = "mul(sub(min_imm(max_imm(add(round(mul(x, inverse)), zero), imm=low), imm=high), zero), scale)"
    gradient_formulas = {
        "x": "select(logical_and(greater_equal(add(round(mul(x, inverse)), zero), low), "
        "less_equal(add(round(mul(x, inverse)), zero), high)), dy, 0)"
    }

    @property
    def inverse(self) -> float:
        """Of the scale."""
        return float(np.float32(1) / np.float32(self.scale))

    @property
    def inside(self) -> tuple[float, float]:
        """The float32 numbers between which, without them, the gradient passes."""
        first = _first(lambda x: bool(self._stored(x) >= self.low))
        behind = _first(lambda x: bool(self._stored(x) > self.high))
        return float(np.nextafter(first, np.float32(-np.inf))), float(behind)

    def forward(self, x: Array) -> Array:
        stored = np.clip(self._stored(x), x.dtype.type(self.low), x.dtype.type(self.high))
        on_grid: Array = (stored - x.dtype.type(self.zero)) * x.dtype.type(self.scale)
        return on_grid

    def grad_x(self, dy: Array, x: Array) -> Array:
        stored = self._stored(x)
        return np.where((self.low <= stored) & (stored <= self.high), dy, dy.dtype.type(0))

    def _stored(self, x: Array) -> Array:
        stored: Array = np.rint(x * x.dtype.type(self.inverse)) + x.dtype.type(self.zero)
        return stored

    @classmethod
    def examples(cls) -> Iterable[Example]:
        yield Example(cls(0.5, 3.0), (random(3, 4, low=-90, high=90),), differentiable=False)
        yield Example(cls(0.25, 0.0, 0.0, 24.0), (random(3, 4, low=-4, high=9),), differentiable=False)


def _first(holds: Callable[[Array], bool]) -> np.float32:
    """The smallest float32 for which something holds that holds for all larger ones."""
    low, high = -LARGEST_BITS, LARGEST_BITS
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if holds(np.array(_float_at(middle))) else (middle + 1, high)
    return _float_at(low)


LARGEST_BITS = 0x7F7FFFFF


def _float_at(place: int) -> np.float32:
    """Finite floats in their order, 0 at 0."""
    size = np.array(abs(place), np.uint32).view(np.float32)[()]
    return np.float32(size if place >= 0 else -size)
