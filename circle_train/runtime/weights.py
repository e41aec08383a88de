"""Parameters by name, as the session's user sees and sets them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, MutableMapping
from typing import Any

import numpy as np

from circle_train.errors import DataError
from circle_train.ir import StateKey
from circle_train.ir.tensor_type import Array
from circle_train.printable import printable
from circle_train.runtime.state import State

Layout = Callable[[str, Array], Array]


def as_it_is(name: str, array: Array) -> Array:
    """The layout of a model that was not converted."""
    return array


class Parameters(MutableMapping[str, Array]):
    """Weights by name: a live view each, read-only where the parameter is frozen; setting one copies into it.

    Order, also of the flat vector: that of the initializers in an ONNX file, else that of first use in the
    graph.
    `inward` and `outward` translate between the layout of the file the user loaded (ONNX) and ours.
    """

    def __init__(
        self, state: State, inward: Layout = as_it_is, outward: Layout = as_it_is, first: Iterable[str] = ()
    ) -> None:
        self._state, self.inward, self._outward = state, inward, outward
        known = [name for name in first if name in state.parameters]
        self._names = list(dict.fromkeys([*known, *state.parameters]))

    def __getitem__(self, name: str) -> Array:
        self._require(name)
        return self._outward(name, self._state.value(name))

    def __setitem__(self, name: str, value: Any) -> None:
        self._require(name)
        current = self[name]
        try:
            array = np.asarray(value).astype(current.dtype, casting="same_kind")
        except (TypeError, ValueError) as error:
            raise DataError(f"parameter '{name}': {error}; give numbers of type {current.dtype}") from None
        if array.shape != current.shape:
            raise DataError(
                f"parameter '{name}' has shape {current.shape}, the new value {array.shape}; give that shape"
            )
        inner = self.inward(name, array)
        key, here = StateKey("value", name), self._state.value(name)
        if here.flags.writeable:
            np.copyto(here, inner)
        else:
            self._state.replace(key, np.array(inner, here.dtype, order="C"))
        self._state.unset.discard(name)

    def __delitem__(self, name: str) -> None:
        raise DataError(f"parameter '{name}' cannot be removed: the model needs it")

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._state.parameters)

    def __contains__(self, name: object) -> bool:
        return name in self._state.parameters

    def get(self, name: str, default: Any = None) -> Any:
        return self[name] if name in self else default

    def trainable(self) -> dict[str, Array]:
        """Those that training changes."""
        return {name: self[name] for name in self if self._state.parameters[name].trained}

    def gradients(self) -> dict[str, Array]:
        """The sums that accumulated so far, of those that training changes; zeros before the first, and of what stays."""
        sums = {name: self._state.spread(StateKey("gradient", name)) for name in self.trainable()}
        return {name: self._outward(name, array) for name, array in sums.items()}

    def flat(self, trainable_only: bool = True) -> Array:
        """All elements as one float32 vector, in the mapping's order."""
        arrays = self.trainable() if trainable_only else dict(self)
        return np.concatenate(
            [np.ravel(a).astype(np.float32, copy=False) for a in arrays.values()] or [np.empty(0, np.float32)]
        )

    def set_flat(self, vector: Any, trainable_only: bool = True) -> None:
        """The inverse of `flat`."""
        arrays = self.trainable() if trainable_only else dict(self)
        values = np.asarray(vector)
        total = sum(array.size for array in arrays.values())
        if values.shape != (total,):
            raise DataError(f"set_flat: the vector has shape {values.shape}, the parameters take ({total},)")
        start = 0
        for name, array in arrays.items():
            self[name] = values[start : start + array.size].reshape(array.shape)
            start += array.size

    def __repr__(self) -> str:
        shown = (f"'{name}': {'×'.join(map(str, array.shape)) or 'a scalar'}" for name, array in self.items())
        return printable(f"Parameters({', '.join(shown)})")

    def _require(self, name: str) -> None:
        if name not in self._state.parameters:
            some = ", ".join(f"'{known}'" for known in list(self)[:5])
            raise DataError(f"there is no parameter '{name}' among the {len(self)} of this model ({some}, …)")
