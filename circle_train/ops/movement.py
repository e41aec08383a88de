"""The family of ops that only move elements, and how their gradients are scattered back."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np

from circle_train.ir import TensorType
from circle_train.ir.tensor_type import Array
from circle_train.ops.base import Op


class Movement(Op):
    """Copies elements of any type, computes nothing."""

    invents: ClassVar[bool] = False
    """Whether there are elements in its result that no operand has."""

    def flops(self, inputs: Sequence[TensorType | None], outputs: Sequence[TensorType]) -> int:
        return 0


def placed(dy: Array, shape: Sequence[int], where: Any) -> Array:
    """Zeros of that shape with dy at the (distinct) places."""
    result = np.zeros(shape, dy.dtype)
    result[where] = dy
    return result


def added(dy: Array, shape: Sequence[int], where: Any) -> Array:
    """Zeros of that shape with dy added at the places, which may repeat."""
    result = np.zeros(shape, dy.dtype)
    np.add.at(result, where, dy)
    return result
