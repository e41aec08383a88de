"""Operators whose results' sizes depend on the data."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from circle_train.ir import DType, TensorType
from circle_train.ir.tensor_type import Array
from circle_train.ops.foreign.operator import Attributes, computes, first, open_of


@computes("NonMaxSuppression", open_of(2, DType.INT64))
def non_max_suppression(xs: Sequence[Array | None], attributes: Attributes) -> list[Array]:
    """Batch, class and box of those that no better one covers."""
    boxes, scores, most, overlap, least = (*xs, None, None, None)[:5]
    assert boxes is not None and scores is not None
    count = 0 if most is None else int(most.reshape(-1)[0])
    covered = 0.0 if overlap is None else float(overlap.reshape(-1)[0])
    threshold = None if least is None else float(least.reshape(-1)[0])
    chosen = []
    for batch in range(scores.shape[0]):
        corners = _corners(boxes[batch], bool(attributes.get("center_point_box", 0)))
        for label in range(scores.shape[1]):
            kept = _kept(corners, scores[batch, label], count, covered, threshold)
            chosen += [(batch, label, box) for box in kept]
    return [np.array(chosen, np.int64).reshape(-1, 3)]


def _corners(boxes: Array, is_centred: bool) -> Array:
    """Lowest and highest coordinates, two by two."""
    if is_centred:
        half = boxes[:, 2:] / 2
        return np.concatenate([boxes[:, :2] - half, boxes[:, :2] + half], axis=1)
    one, two = boxes[:, :2], boxes[:, 2:]
    return np.concatenate([np.minimum(one, two), np.maximum(one, two)], axis=1)


def _kept(boxes: Array, scores: Array, count: int, covered: float, threshold: float | None) -> list[int]:
    kept: list[int] = []
    areas = np.prod(boxes[:, 2:] - boxes[:, :2], axis=1)
    for box in np.argsort(-scores, kind="stable").tolist():
        if len(kept) >= count or (threshold is not None and scores[box] <= threshold):
            break
        others = boxes[kept]
        size = np.minimum(boxes[box, 2:], others[:, 2:]) - np.maximum(boxes[box, :2], others[:, :2])
        common = np.prod(np.maximum(size, 0), axis=1)
        union = areas[box] + areas[kept] - common
        if not (common > covered * union).any():
            kept.append(box)
    return kept


def _unique_types(xs: Sequence[TensorType | None], attributes: Attributes) -> list[TensorType]:
    axis, x = attributes.get("axis"), first(xs)
    shape = [-1] if axis is None else list(x.shape)
    shape[0 if axis is None else axis] = -1
    return [TensorType(x.dtype, tuple(shape)), *(TensorType(DType.INT64, (-1,)) for _ in range(3))]


@computes("Unique", _unique_types)
def unique(xs: Sequence[Array | None], attributes: Attributes) -> list[Array]:
    """The different slices, where each was first, which each is, and how often it is there."""
    x, axis = np.asarray(xs[0]), attributes.get("axis")
    y, places, inverse, counts = np.unique(x, True, True, True, axis=axis)
    inverse = inverse.reshape(-1)
    if not attributes.get("sorted", 1):
        order = np.argsort(places, kind="stable")
        y, places, counts = np.take(y, order, axis=axis or 0), places[order], counts[order]
        inverse = np.argsort(order, kind="stable")[inverse]
    return [y, *(part.astype(np.int64) for part in (places, inverse, counts))]


def _compressed_types(xs: Sequence[TensorType | None], attributes: Attributes) -> list[TensorType]:
    axis, x = attributes.get("axis"), first(xs)
    shape = [-1] if axis is None else list(x.shape)
    shape[0 if axis is None else axis] = -1
    return [TensorType(x.dtype, tuple(shape))]


@computes("Compress", _compressed_types)
def compress(xs: Sequence[Array | None], attributes: Attributes) -> list[Array]:
    x, condition = np.asarray(xs[0]), np.asarray(xs[1])
    return [np.compress(condition, x, axis=attributes.get("axis"))]
