"""An operator on stored integers, run on the real numbers that they stand for."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from circle_train.ir import DType, Quantization, TensorType
from circle_train.ir.tensor_type import Array
from circle_train.ops.axes import Axes
from circle_train.ops.base import Op, register
from circle_train.ops.internal.integers.sigmoids16 import has_integer_form, sigmoid
from circle_train.ops.numeric.activation import Logistic, Tanh
from circle_train.ops.numeric.quantize import dequantize, quantize
from circle_train.ops.rearranging import Within
from circle_train.record import record


@register("QUANTIZED", internal=True)
@record
class Quantized(Op):
    """quantize(op(dequantize(x), …)); tensors without quantization pass as they are."""

    of: Op
    given: tuple[Quantization | None, ...]
    """Of the inputs."""
    made: tuple[tuple[DType, Quantization | None], ...]
    """Element type and quantization of the outputs."""

    @property
    def axes(self) -> Axes:  # type: ignore[override]
        return Within(of=self.of)

    def infer(self, *xs: TensorType | None) -> Sequence[TensorType]:
        real = [self._real_type(x, quantization) for x, quantization in zip(xs, self.given, strict=True)]
        types = self.of.infer_types(real)
        return [
            type_ if quantization is None else TensorType(dtype, type_.shape, quantization=quantization)
            for type_, (dtype, quantization) in zip(types, self.made, strict=True)
        ]

    def forward(self, *xs: Array | None) -> tuple[Array, ...]:
        if xs and xs[0] is not None and self._is_sigmoid16(xs[0]):
            assert self.given[0] is not None
            return (sigmoid(xs[0], self.given[0].scale[0], isinstance(self.of, Tanh)),)
        reals = [
            x if x is None or quantization is None else dequantize(x, quantization)
            for x, quantization in zip(xs, self.given, strict=True)
        ]
        return tuple(
            y if quantization is None else quantize(y, quantization, dtype)
            for y, (dtype, quantization) in zip(self.of.compute(reals), self.made, strict=True)
        )

    def flops(self, inputs: Sequence[TensorType | None], outputs: Sequence[TensorType]) -> int:
        return self.of.flops(inputs, outputs)

    def _is_sigmoid16(self, x: Array) -> bool:
        """Whether LiteRT's own arithmetic is some steps from the function."""
        dtype, made = self.made[0]
        is_one = isinstance(self.of, (Logistic, Tanh)) and x.dtype == np.int16 and dtype is DType.INT16
        return is_one and has_integer_form(self.given[0], made)

    @staticmethod
    def _real_type(x: TensorType | None, quantization: Quantization | None) -> TensorType | None:
        return x if x is None or quantization is None else TensorType(DType.FLOAT32, x.shape)
