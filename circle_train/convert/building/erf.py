"""The error function, which Circle lacks: kept whole while patterns are looked for, then written by GELU."""

from __future__ import annotations

from math import erf, sqrt

import numpy as np

from circle_train.convert.building.builder import Builder
from circle_train.ir import DType, Tensor
from circle_train.ir.tensor_type import Array
from circle_train.ops.base import Op, describe

_erf = np.vectorize(erf, otypes=[np.float64])


class Erf(Op):
    """2/√π ∫₀ˣ exp(-t²) dt; never leaves the converter."""

    def forward(self, x: Array) -> Array:
        return np.asarray(_erf(x), x.dtype) if x.size else x


describe(Erf, "ERF")


def lowered(b: Builder, given: Tensor) -> Tensor:
    """erf(x) = sign(x) (2 Φ(|x| √2) - 1), and GELU(u) = u Φ(u), for any u > 16 as for 16; halves are too coarse for √2."""
    x = b.cast(given, DType.FLOAT32)
    u = b("MAXIMUM", b("MUL", b("ABS", x), b.like(x, sqrt(2))), b.like(x, 1e-20))
    u = b("MINIMUM", u, b.like(x, 16))
    twice = b("MUL", b("DIV", b("GELU", u), u), b.like(x, 2))
    return b.cast(b("MUL", b("SIGN", x), b("SUB", twice, b.like(x, 1))), given.dtype)
