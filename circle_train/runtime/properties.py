"""Numbers and strings that a session's user stores with the checkpoint."""

from __future__ import annotations

from collections.abc import Iterator, MutableMapping
from typing import Any

import numpy as np

from circle_train.errors import DataError
from circle_train.runtime.state import State

Value = int | float | str


class Properties(MutableMapping[str, Value]):
    """int, float and str by name; they are saved and loaded with a .safetensors checkpoint.

    Example:
        >>> import circle_train as ct
        >>> session = ct.TrainSession("tests/data/mlp.circle", ct.TrainConfig(loss="mse"))
        >>> session.properties["round"] = 3
        >>> dict(session.properties)
        {'round': 3}
    """

    def __init__(self, state: State) -> None:
        self._values = state.properties

    def __getitem__(self, name: str) -> Value:
        return self._values[name]

    def __setitem__(self, name: str, value: Value | np.number[Any]) -> None:
        if not isinstance(name, str):
            raise DataError(f"property {name!r}: names are strings, not {type(name).__name__}")
        plain = value.item() if isinstance(value, np.number) else value
        if isinstance(plain, bool) or not isinstance(plain, (int, float, str)):
            raise DataError(f"property '{name}' is {value!r}, expected an int, a float or a str; convert it")
        self._values[name] = plain

    def __delitem__(self, name: str) -> None:
        del self._values[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __repr__(self) -> str:
        return f"Properties({self._values})"
