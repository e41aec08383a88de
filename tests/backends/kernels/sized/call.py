"""One call of a kernel: its arguments, its outputs before, and what numpy says they are afterwards."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from native import THREADS, run, struct, tiers

from circle_train.backends.native.engine import abi

Arrays = dict[str, np.ndarray]
Make = Callable[[Arrays], Any]
RELU, N1, RELU6, TANH = abi.Act.RELU, abi.Act.RELU_N1_TO_1, abi.Act.RELU6, abi.Act.TANH
SWISH, HARD_SWISH = abi.Act.SWISH, abi.Act.HARD_SWISH
CURVES = TANH, SWISH, HARD_SWISH


def act(y: np.ndarray, kind: int) -> np.ndarray:
    return {
        0: lambda v: v,
        RELU: lambda v: np.maximum(v, 0),
        N1: lambda v: np.clip(v, -1, 1),
        RELU6: lambda v: np.clip(v, 0, 6),
        TANH: np.tanh,
        SWISH: lambda v: v * (0.5 + 0.5 * np.tanh(v / 2)),
        HARD_SWISH: lambda v: v * np.clip(v + 3, 0, 6) / 6,
    }[kind](y)


def slope(y: np.ndarray, kind: int) -> np.ndarray:
    return {
        0: np.ones_like,
        RELU: lambda v: v > 0,
        N1: lambda v: (v > -1) & (v < 1),
        RELU6: lambda v: (v > 0) & (v < 6),
        TANH: lambda v: 1 - v * v,
    }[kind](y)


def rand(*shape: int, scale: float = 1.0, seed: int = 0) -> np.ndarray:
    return (np.random.default_rng([seed, *shape]).standard_normal(shape) * scale).astype(np.float32)


def zeros(*shape: int) -> np.ndarray:
    return np.zeros(shape, np.float32)


def close(got: np.ndarray, want: np.ndarray, tolerance: float = 2e-5) -> None:
    assert got.shape == want.shape
    scale = max(1e-30, float(np.abs(want).max())) if want.size else 1.0
    error = float(np.abs(got - want).max()) / scale if want.size else 0.0
    assert error <= tolerance, f"error {error:.2e} of the largest value"


class Call(NamedTuple):
    """One call: its arguments for given outputs, the outputs before, and after."""

    make: Make
    outputs: Arrays
    wants: Arrays

    def itself(self) -> Call:
        return self

    def agrees(self, kernel: str, tolerance: float = 2e-5) -> None:
        """In each tier and thread count: close to what is wanted, and the same bits whatever the thread count."""
        for tier in tiers():
            first: Arrays = {}
            for threads in THREADS:
                fresh = {name: value.copy() for name, value in self.outputs.items()}
                assert run(kernel, self.make(fresh), threads, tier) == 0
                if not first:
                    first = fresh
                    for name, want in self.wants.items():
                        close(fresh[name].astype(np.float64), want.astype(np.float64), tolerance)
                for name in self.outputs:
                    same = fresh[name].tobytes() == first[name].tobytes()
                    assert same, f"{name} differs at {threads} threads"


def args(name: str, **given: Any) -> Make:
    """A structure whose other fields are the outputs."""
    return lambda out: struct(name, **given, **out)


def summing(name: str, accumulate: int = 0, **given: Any) -> Make:
    """A structure whose other fields say where gradients go: those named alike, or else dx itself."""

    def make(out: Arrays) -> Any:
        fields = {key: value for key, value in out.items() if key != "dx"}
        update = {k: struct("ct_update", g=value, accumulate=accumulate) for k, value in fields.items()}
        return struct(name, **given, **(out | update))

    return make


def stored(make: Make, **wants: np.ndarray) -> Call:
    """Outputs are written, whatever they held."""
    return Call(make, {name: zeros(*want.shape) + 7 for name, want in wants.items()}, wants)


def added(make: Make, before: np.ndarray, **wants: np.ndarray) -> Call:
    """Outputs begin with what lies there."""
    return Call(make, dict.fromkeys(wants, before), wants)
