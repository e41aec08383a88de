"""Constants that are another one's elements in another order: nobody keeps them who does not need them."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from circle_train.ir.graph import constant
from circle_train.ir.mapped import release
from circle_train.ir.node import Tensor
from circle_train.ir.remade import Remade
from circle_train.ir.tensor_type import Array, TensorType

LARGE = 64 << 10
"""Bytes below which a constant is made once and kept."""


class Rearranged(Remade):
    """There for as long as somebody holds it: what trains has a copy of its own."""

    def __init__(self, source: Tensor, step: Callable[[Array], Array], nbytes: int) -> None:
        super().__init__()
        self._source, self._step, self._nbytes = source, step, nbytes

    def make(self) -> Array:
        made = np.array(self.strided, order="C")
        release(self.behind)
        return made

    @property
    def strided(self) -> Array:
        """The elements where they lie, as far as steps can be taken without moving them."""
        return self._step(strided(self._source))

    @property
    def nbytes(self) -> int:
        return self._nbytes

    @property
    def behind(self) -> Array:
        assert self._source.buffer is not None
        return self._source.buffer.behind


def strided(tensor: Tensor) -> Array:
    """A constant's elements, in whatever order they lie."""
    return tensor.buffer.strided if isinstance(tensor.buffer, Rearranged) else tensor.data


def rearranged(source: Tensor, step: Callable[[Array], Array]) -> Tensor:
    """A constant of the source's elements as the step, which changes none of them, leaves them."""
    value = step(strided(source))
    assert source.buffer is not None
    lies_there = value.flags.c_contiguous and np.may_share_memory(value, source.buffer.behind)
    if lies_there or value.nbytes < LARGE:
        return constant(value)
    type_ = TensorType.of(value)
    return Tensor("constant", type_, Rearranged(source, step, value.nbytes))
