"""What weights that are trained on grids are rounded to by now, renewed where they have moved."""

from __future__ import annotations

from zlib import crc32

import numpy as np

from circle_train.ir.tensor_type import Array
from circle_train.passes.integers.as_stored import Stored
from circle_train.runtime.module import integers_of
from circle_train.runtime.state import State
from circle_train.settings.parameters import Parameter


class StoredWeights:
    """The integers of a session, as export would write them."""

    def __init__(self, state: State) -> None:
        self.weights: tuple[Stored, ...] = ()
        self.state = state
        known = list(state.parameters.values())
        self._learned = [p for p in known if p.tensor.quantization is not None]
        self._floats = tuple(_stored(p, None) for p in known if p.tensor.quantization is None)
        self._seen = [0] * len(self._learned)
        """A sum over each master, as it was when it was rounded."""

    @property
    def is_any(self) -> bool:
        """Whether the model is one of integers."""
        return bool(self._learned)

    def renew(self) -> bool:
        """Round anew what has moved; whether some integer is another one now."""
        values = [self.state.value(p.name) for p in self._learned]
        sums = [crc32(np.ascontiguousarray(value).data) for value in values]
        if sums == self._seen and (self.weights or not sums):
            return False
        before = self.weights[: len(sums)] or [None] * len(sums)
        now = [
            old if old is not None and same == seen else _stored(p, value)
            for p, value, old, same, seen in zip(self._learned, values, before, sums, self._seen, strict=True)
        ]
        self.weights, self._seen = (*now, *self._floats), sums
        return any(
            old is None or not np.array_equal(_integers(new), _integers(old))
            for new, old in zip(now, before, strict=True)
        )


def _stored(parameter: Parameter, value: Array | None) -> Stored:
    meaning = parameter.tensor.quantization
    integers = None if value is None or meaning is None else integers_of(parameter.root, value, meaning)
    return Stored(parameter.name, parameter.root, parameter.readers, parameter.trained, meaning, integers)


def _integers(weight: Stored) -> Array:
    assert weight.integers is not None
    return weight.integers
