"""numpy's functions by the names that they go by as methods of a symbol."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

UFUNCS: dict[Callable[..., Any], str] = {
    np.add: "__add__",
    np.subtract: "__sub__",
    np.multiply: "__mul__",
    np.divide: "__truediv__",
    np.power: "__pow__",
    np.matmul: "__matmul__",
    np.less: "__lt__",
    np.less_equal: "__le__",
    np.greater: "__gt__",
    np.greater_equal: "__ge__",
    np.equal: "__eq__",
    np.not_equal: "__ne__",
    np.maximum: "maximum",
    np.minimum: "minimum",
    np.negative: "__neg__",
    np.absolute: "__abs__",
    np.square: "square",
    np.sqrt: "sqrt",
    np.exp: "exp",
    np.log: "log",
    np.tanh: "tanh",
    np.sin: "sin",
    np.cos: "cos",
}
"""Called on the first argument, with the others."""

FUNCTIONS: dict[Callable[..., Any], str] = {
    np.mean: "mean",
    np.sum: "sum",
    np.max: "max",
    np.min: "min",
    np.var: "var",
    np.std: "std",
    np.clip: "clip",
    np.reshape: "reshape",
    np.transpose: "transpose",
}
"""The same."""


def known() -> str:
    """The functions that a symbol understands, for a message."""
    found = [*UFUNCS, *FUNCTIONS, np.where, np.concatenate]
    return ", ".join(sorted({function.__name__ for function in found}))
