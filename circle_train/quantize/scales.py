"""Scales and zero points, and constants in them."""

from __future__ import annotations

import numpy as np

from circle_train.ir import Buffer, DType, Quantization, Tensor, TensorType
from circle_train.ir.tensor_type import Array

LARGEST_BIAS = 1 << 30
"""Of a bias in 32 bits, which leaves room for the products that are added to it."""
SMALLEST = 1e-30
"""Of a scale: what is smaller is nothing."""


def affine(low: float, high: float, dtype: DType) -> Quantization:
    """Of activations from low to high, and zero, which padding needs; 16 bits lie around it."""
    low, high = min(low, 0.0), max(high, 0.0)
    limits = np.iinfo(dtype.numpy)
    if dtype is DType.INT16:
        return Quantization((single(max(-low, high) / limits.max or 1.0),), (0,))
    scale = single((high - low) / (int(limits.max) - int(limits.min)) or 1.0)
    zero_point = round(float(np.clip(limits.min - low / scale, limits.min, limits.max)))
    return Quantization((scale,), (zero_point,))


def of_pixels(mean: float, std: float) -> Quantization | None:
    """In which (pixel - mean) / std is stored as the pixel less 128; None where no byte stands for zero."""
    zero_point = round(mean) - 128
    return Quantization((single(1 / std),), (zero_point,)) if -128 <= zero_point <= 127 and std > 0 else None


def symmetric(w: Array, axis: int | None, least: Array | float = 0.0) -> Quantization:
    """Of weights in 8 bits, for each entry of the axis; `least` is what their biases ask for."""
    others = None if axis is None else tuple(i for i in range(w.ndim) if i != axis)
    largest = np.abs(w).max(axis=others).reshape(-1) if w.size else np.zeros(1)
    scale = np.maximum(np.maximum(largest / 127.0, least), SMALLEST)
    scale = np.where(largest > 0, scale, np.maximum(scale, scale.max(initial=SMALLEST)))
    scale = np.where(scale <= SMALLEST, 1.0, scale)
    return Quantization(tuple(map(single, scale)), (0,) * scale.size, axis or 0)


def for_bias(bias: Array | None, x: Quantization) -> Array | float:
    """The least scale of each output's weights with which its bias fits."""
    return 0.0 if bias is None else np.abs(bias.reshape(-1)) / (x.scale[0] * LARGEST_BIAS)


def product(x: Quantization, w: Quantization) -> Quantization:
    """Of what is added to the products of the two."""
    return Quantization(tuple(x.scale[0] * each for each in w.scale), (0,) * len(w.scale))


def single(scale: float) -> float:
    """As a file holds it."""
    return float(np.float32(max(scale, SMALLEST)))


def constant_in(values: Array, name: str, dtype: DType, quantization: Quantization) -> Tensor:
    """A constant of integers with these scales."""
    made = Tensor(name, TensorType(dtype, values.shape), Buffer(as_integers(values, dtype, quantization)))
    made.quantization = quantization
    return made


def as_integers(values: Array, dtype: DType, quantization: Quantization) -> Array:
    """The bytes: rounded to even, and symmetric where the zero point is 0."""
    limits = np.iinfo(dtype.numpy)
    scale, zero_point = (np.array(each, np.float64) for each in (quantization.scale, quantization.zero_point))
    if scale.size > 1:
        shape = [1] * values.ndim
        shape[quantization.axis] = -1
        scale, zero_point = scale.reshape(shape), zero_point.reshape(shape)
    low = -limits.max if not zero_point.any() else limits.min
    stored = np.clip(np.rint(values / scale + zero_point), low, limits.max)
    return np.ascontiguousarray(stored.astype(dtype.numpy)).reshape(-1).view(np.uint8)
