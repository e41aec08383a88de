"""Spectra of real signals."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from circle_train.errors import ModelError
from circle_train.ir import DType, TensorType
from circle_train.ir.tensor_type import Array
from circle_train.ops.axes import Elementwise, Mixes
from circle_train.ops.base import Example, Op, random, register
from circle_train.ops.checks import sizes_in


@register("RFFT2D", "Rfft2dOptions")
class Rfft2D(Op):
    """The half of a real image's spectrum that says all; images are cut, or filled up with zeros, to `fft_length`."""

    axes = Mixes("every frequency is made of all places")
    static_inputs = ("fft_length",)

    def infer(self, x: TensorType, fft_length: TensorType) -> TensorType:
        if x.rank < 2 or x.dtype is not DType.FLOAT32 or fft_length.shape not in ((2,), (-1,)):
            raise ModelError(
                f"{self.name}: x is {x}, fft_length {fft_length}; expected images of float32 and two lengths"
            )
        height, width = (-1, -1) if fft_length.value is None else sizes_in(fft_length.value)
        if fft_length.value is not None and min(height, width) < 1:
            raise ModelError(f"{self.name}: fft_length is {height}×{width}, expected lengths from 1")
        last = width // 2 + 1 if fft_length.value is not None else -1
        return TensorType(DType.COMPLEX64, (*x.shape[:-2], height, last))

    def forward(self, x: Array, fft_length: Array) -> Array:
        return np.fft.rfft2(x, tuple(int(n) for n in fft_length)).astype(np.complex64)

    @classmethod
    def examples(cls) -> Iterable[Example]:
        for lengths in ((4, 8), (2, 4), (1, 16)):
            x = random(3, 4, 8).astype(np.float32)
            yield Example(cls(), (x, np.array(lengths, np.int32)), differentiable=False)


class _OfComplex(Op):
    """Base: a real number of each complex one."""

    axes = Elementwise()

    def infer(self, x: TensorType) -> TensorType:
        if x.dtype is not DType.COMPLEX64:
            raise ModelError(f"{self.name}: x is {x}, expected complex64")
        return TensorType(DType.FLOAT32, x.shape)

    @classmethod
    def examples(cls) -> Iterable[Example]:
        x = (random(3, 4) + 1j * random(3, 4, seed=1)).astype(np.complex64)
        yield Example(cls(), (x,), differentiable=False)


@register("COMPLEX_ABS")
class ComplexAbs(_OfComplex):
    def forward(self, x: Array) -> Array:
        return np.abs(x)


@register("REAL")
class Real(_OfComplex):
    def forward(self, x: Array) -> Array:
        return np.ascontiguousarray(x.real)


@register("IMAG")
class Imag(_OfComplex):
    def forward(self, x: Array) -> Array:
        return np.ascontiguousarray(x.imag)
