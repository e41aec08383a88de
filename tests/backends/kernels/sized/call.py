"""One call of a kernel: its arguments, its outputs before, and what numpy says they are afterwards."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from native import struct

Arrays = dict[str, np.ndarray]
Make = Callable[[Arrays], Any]


class Call(NamedTuple):
    """One call: its arguments for given outputs, the outputs before, and after."""

    make: Make
    outputs: Arrays
    wants: Arrays

    def itself(self) -> Call:
        return self


def args(name: str, **given: Any) -> Make:
    """A structure whose other fields are the outputs."""
    return lambda out: struct(name, **given, **out)


def summing(name: str, **given: Any) -> Make:
    """A structure whose other fields say where gradients go: those named alike, or else dx itself."""

    def make(out: Arrays) -> Any:
        update = {key: struct("ct_update", g=value) for key, value in out.items() if key != "dx"}
        return struct(name, **given, **(out | update))

    return make


def zeros(*shape: int) -> np.ndarray:
    return np.zeros(shape, np.float32)


def stored(make: Make, **wants: np.ndarray) -> Call:
    """Outputs are written, whatever they held."""
    return Call(make, {name: zeros(*want.shape) + 7 for name, want in wants.items()}, wants)
