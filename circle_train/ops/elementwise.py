"""Families that activation and arithmetic ops are made from: one input, or two that broadcast."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, ClassVar

import numpy as np

from circle_train.errors import ModelError
from circle_train.ir import TensorType
from circle_train.ir.size import Size
from circle_train.ir.tensor_type import Array
from circle_train.ops.axes import Elementwise
from circle_train.ops.base import Example, Op, random


def where_felt(formula: str) -> str:
    """0 where nothing depends on the result: behind a mask a slope that is infinite would make 0 · ∞ of it, which is NaN."""
    return f"select(equal(dy, 0), 0, {formula})"


def felt(dy: Array, gradient: Array) -> Array:
    """The same in numpy."""
    return np.where(dy == 0, dy.dtype.type(0), gradient)


class Unary(Op):
    """Output type = input type; examples away from kinks at 0, ±1 and 6."""

    inplace = ("x",)
    positive_only: ClassVar[bool] = False
    axes = Elementwise()

    @classmethod
    def examples(cls) -> Iterable[Example]:
        yield Example(cls(), (random(2, 3, low=0.1, high=0.9),))
        if not cls.positive_only:
            yield Example(cls(), (random(4, 1, 5, low=-0.95, high=-0.05),))
        yield Example(cls(), (random(3, 2, low=1.1, high=5.9),))
        yield Example(cls(), (np.array(0.4),))


class OfFloats(Unary):
    """Defined for floats only; integers with a scale stand for some."""

    def infer(self, x: TensorType) -> TensorType:
        return only_floats(self.name, x)


def only_floats(op: str, x: TensorType) -> TensorType:
    if not x.dtype.is_float and x.quantization is None:
        raise ModelError(f"{op}: input is {x}, expected floats; insert a CAST")
    return TensorType(x.dtype, x.shape)


def broadcast(op: str, *types: TensorType) -> tuple[int, ...]:
    """The common shape of operands, numpy's rule; -1 stands for any size."""
    shape: list[int] = []
    for axis in range(1, max(t.rank for t in types) + 1):
        size = common_size([t.shape[-axis] for t in types if t.rank >= axis])
        if size is None:
            shapes = " and ".join(str(t) for t in types)
            raise ModelError(
                f"{op}: shapes do not broadcast: {shapes}; from the last axis on, sizes must be equal or 1"
            )
        shape.append(size)
    return tuple(reversed(shape))


def common_size(sizes: Sequence[int]) -> int | None:
    """What sizes of one axis broadcast to; None where they do not. A number decides against open sizes."""
    numbers = {size for size in sizes if not isinstance(size, Size)} - {1}
    if len(numbers - {-1}) > 1:
        return None
    if numbers and max(numbers) >= 0:
        return max(numbers)
    opens: Any = [size for size in sizes if isinstance(size, Size)]
    if numbers or not opens:
        return max(numbers, default=1)
    return next((one for one in opens if all(other == one or _is_part(other, one) for other in opens)), None)


def _is_part(size: Size, whole: Size) -> bool:
    """Whether it is the smaller of the whole and a number: beside the whole it is right where both are the same."""
    if len(size.terms) != 1 or size.terms[0][1] != 1 or len(size.terms[0][0]) != 1:
        return False
    (atom,) = size.terms[0][0]
    return atom.kind == "MINIMUM" and any(isinstance(one, Size) and one == whole for one in atom.operands)


def same_dtype(op: str, *types: TensorType) -> None:
    """Refuse operands of different element types."""
    if len({t.dtype for t in types}) > 1:
        found = ", ".join(t.dtype.name for t in types)
        raise ModelError(f"{op}: operands have element types {found}, expected one; insert a CAST")


class Binary(Op):
    """Two operands of one element type that broadcast."""

    scalar_parameters = False
    inplace = ("x1", "x2")
    positive_only: ClassVar[bool] = False
    integers_too: ClassVar[bool] = True
    axes = Elementwise()

    def infer(self, x1: TensorType, x2: TensorType) -> TensorType:
        same_dtype(self.name, x1, x2)
        return TensorType(x1.dtype, broadcast(self.name, x1, x2))

    @classmethod
    def examples(cls) -> Iterable[Example]:
        low = 0.2 if cls.positive_only else -1.0
        for shapes in (((2, 3), (2, 3)), ((2, 1, 3), (4, 1)), ((3,), (2, 3)), ((), (2, 2)), ((2, 2), (1,))):
            first, second = (random(*shape, seed=i, low=low) for i, shape in enumerate(shapes))
            yield Example(cls(), (first, second if cls.positive_only else second + np.sign(second) * 0.3))
        if cls.integers_too:
            yield Example(cls(), (np.array([[7, -7, 7, -7], [6, 0, 5, -9]]), np.array([2, 2, 3, 3])))
            yield Example(cls(), (np.array([9, 4, 8], np.int32), np.array([[4], [3]], np.int32)))
