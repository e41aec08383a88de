"""Resize along axes whose sizes are open: where each element of the result looks is computed while it runs."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from circle_train.convert.building.builder import Builder
from circle_train.convert.building.refusal import Refusal
from circle_train.convert.handlers.layers.sample import CUBIC, taps
from circle_train.ir import DType, Tensor

FOLLOWED = ("asymmetric", "half_pixel", "pytorch_half_pixel", "align_corners", "tf_half_pixel_for_nn")

BEGINNINGS, CENTRED = ("asymmetric",), ("asymmetric", "tf_half_pixel_for_nn")
"""Where positions are not those of the elements' centres: in the result, in x."""


def resampled(
    b: Builder, x: Tensor, axis: int, target: int, scale: float | None, attributes: Mapping[str, object]
) -> Tensor:
    """The tensor with so many elements along an axis, in single precision as onnxruntime computes it."""
    mode = str(attributes.get("mode", "nearest"))
    if attributes.get("antialias") or attributes.get("exclude_outside"):
        raise Refusal("it resizes a symbolic size and weighs only what lies inside")
    size = b.shape(x)[axis]
    at = _positions(b, size, target, scale, attributes)
    last = b("SUB", b.reshape(b.integers([size]), ()), b.constant(1, np.int32))
    if mode == "nearest":
        at = _rounded(b, at, str(attributes.get("nearest_mode", "round_prefer_floor")))
        return b("GATHER", x, _within(b, at, last), axis=axis, batch_dims=0)
    if mode == "linear":
        at = b("MINIMUM", b("MAXIMUM", at, b.like(at, 0)), b.cast(last, DType.FLOAT32))
    total: Tensor | None = None
    for place, weight in taps(b, at, mode, float(str(attributes.get("cubic_coeff_a", CUBIC)))):
        value = b("GATHER", x, _within(b, place, last), axis=axis, batch_dims=0)
        if weight is not None:
            shape = [-1 if i == axis else 1 for i in range(x.type.rank)]
            value = b("MUL", value, b.cast(b.reshape(weight, shape), x.dtype))
        total = value if total is None else b("ADD", total, value)
    assert total is not None
    return total


def _within(b: Builder, at: Tensor, last: Tensor) -> Tensor:
    """Whole positions, those outside moved to the edge."""
    return b("MINIMUM", b.cast(b("MAXIMUM", at, b.like(at, 0)), DType.INT32), last)


def _positions(
    b: Builder, size: int, target: int, scale: float | None, attributes: Mapping[str, object]
) -> Tensor:
    """Where each element of the result lies among those of x."""
    how = str(attributes.get("coordinate_transformation_mode", "half_pixel"))
    if how not in FOLLOWED:
        raise Refusal(f"it resizes a symbolic size where positions are '{how}'")
    ends = [b.cast(b.reshape(b.integers([n]), ()), DType.FLOAT32) for n in (target, size)]
    at = b.cast(b.numbers(target), DType.FLOAT32)
    one = b.like(at, 1)
    if how == "align_corners":
        steps = b("MAXIMUM", b("SUB", ends[0], one), one)
        return b("DIV", b("MUL", at, b("SUB", ends[1], one)), steps)
    factor = b("DIV", *ends) if scale is None else b.like(at, scale)
    before, behind = (b.like(at, 0.0 if how in none else 0.5) for none in (BEGINNINGS, CENTRED))
    found = b("SUB", b("DIV", b("ADD", at, before), factor), behind)
    if how == "pytorch_half_pixel":
        return b("MUL", found, b.cast(b("GREATER", ends[0], one), DType.FLOAT32))
    return found


def _rounded(b: Builder, at: Tensor, rounding: str) -> Tensor:
    if rounding == "round_prefer_floor":
        return b("CEIL", b("SUB", at, b.like(at, 0.5)))
    if rounding == "round_prefer_ceil":
        return b("FLOOR", b("ADD", at, b.like(at, 0.5)))
    return b("CEIL" if rounding == "ceil" else "FLOOR", at)
