"""A symbol's index as STRIDED_SLICE takes it; open ends stay open, so that a formula fits any batch size."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from circle_train.errors import ConfigError
from circle_train.ir.tensor_type import Array
from circle_train.record import record

MASKS = ("begin_mask", "end_mask", "shrink_axis_mask")


@record
class Span:
    """What STRIDED_SLICE takes of one axis; open ends are not numbers, so that they fit any size."""

    begin: int
    end: int
    step: int
    begin_mask: bool = False
    end_mask: bool = False
    shrink_axis_mask: bool = False

    @classmethod
    def of(cls, key: int | slice, size: int) -> Span:
        if isinstance(key, int):
            place = range(size)[key]
            return cls(place, place + 1, 1, shrink_axis_mask=True)
        span = range(size)[key]
        starts, ends = key.start is None, key.stop is None or span.stop < 0
        return cls(0 if starts else span.start, 0 if ends else span.stop, span.step, starts, ends)


def strided(keys: Sequence[int | slice], shape: Sequence[int]) -> tuple[list[Array], dict[str, Any]]:
    """The inputs begin, end and step, and the masks as options."""
    spans = [Span.of(key, size) for key, size in zip(keys, shape, strict=True)]
    columns = [np.array([getattr(span, end) for span in spans], np.int32) for end in ("begin", "end", "step")]
    masks = {mask: sum(getattr(span, mask) << i for i, span in enumerate(spans)) for mask in MASKS}
    return columns, masks


def whole_key(key: Any, shape: tuple[int, ...]) -> list[Any]:
    """The key with its ellipsis written out: an entry for each axis, and None for each new one."""
    keys = key if isinstance(key, tuple) else (key,)
    count = sum(k is not None and k is not Ellipsis for k in keys)
    dots = [i for i, k in enumerate(keys) if k is Ellipsis] or [len(keys)]
    every = [slice(None)] * (len(shape) - count)
    whole = [*keys[: dots[0]], *every, *keys[dots[0] + 1 :]]
    picks = [k for k in whole if k is not None]
    fits = len(dots) == 1 and len(picks) == len(shape)
    if not fits or not all(map(_picks, picks, shape)):
        raise ConfigError(
            f"{key!r} cannot index a symbol of shape {shape}; use integers and slices with steps"
        )
    return whole


def _picks(key: Any, size: int) -> bool:
    """Whether the key picks something along an axis of this size."""
    return isinstance(key, slice) or (isinstance(key, int) and -size <= key < size)
