"""Operators on images that gather from computed places."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np

from circle_train.ir import TensorType
from circle_train.ir.tensor_type import Array
from circle_train.ops.foreign.operator import Attributes, computes, first


def _regions(xs: Sequence[TensorType | None], attributes: Attributes) -> list[TensorType]:
    x, rois = first(xs), xs[1]
    count = rois.shape[0] if rois is not None else -1
    size = (attributes.get("output_height", 1), attributes.get("output_width", 1))
    return [TensorType(x.dtype, (count, x.shape[1], *size))]


@computes("RoiAlign", _regions)
def roi_align(xs: Sequence[Array | None], attributes: Attributes) -> list[Array]:
    """The mean (or largest share) of samples in every cell of each region."""
    x, rois, batches = (np.asarray(value) for value in xs[:3])
    height, width = int(attributes.get("output_height", 1)), int(attributes.get("output_width", 1))
    half = 0.5 if attributes.get("coordinate_transformation_mode", "half_pixel") == "half_pixel" else 0.0
    scale, ratio = float(attributes.get("spatial_scale", 1.0)), int(attributes.get("sampling_ratio", 0))
    result = np.zeros((len(rois), x.shape[1], height, width), x.dtype)
    for number, (roi, batch) in enumerate(zip(rois, batches, strict=True)):
        left, top, right, bottom = roi * scale - half
        size = np.array([bottom - top, right - left])
        size = size if half else np.maximum(size, 1.0)
        cell = size / (height, width)
        grid = [ratio or max(int(np.ceil(n)), 1) for n in cell]
        rows = top + (np.arange(height * grid[0]) + 0.5) * cell[0] / grid[0]
        columns = left + (np.arange(width * grid[1]) + 0.5) * cell[1] / grid[1]
        corners = _corners(x[batch], rows, columns)
        is_mean = attributes.get("mode", "avg") == "avg"
        values = corners.sum(0) if is_mean else corners.max(0)
        cells = values.reshape(x.shape[1], height, grid[0], width, grid[1])
        result[number] = cells.mean((2, 4)) if is_mean else cells.max((2, 4))
    return [result]


def _corners(image: Array, rows: Array, columns: Array) -> Array:
    """Shares of the four pixels around each place; nothing beyond one pixel outside."""
    height, width = image.shape[1:]
    parts = []
    pairs = [_neighbours(rows, height), _neighbours(columns, width)]
    for row, row_share in pairs[0]:
        for column, column_share in pairs[1]:
            parts.append(image[:, row][:, :, column] * row_share[:, None] * column_share)
    return np.stack(parts)


def _neighbours(places: Array, size: int) -> list[tuple[Array, Array]]:
    inside = (places >= -1) & (places <= size)
    at = np.clip(places, 0, size - 1)
    low = np.minimum(at.astype(np.int64), size - 1)
    share = at - low
    high = np.minimum(low + 1, size - 1)
    return [(low, (1 - share) * inside), (high, share * inside)]


def _folded(xs: Sequence[TensorType | None], attributes: Attributes) -> list[TensorType]:
    x, image, block = (*xs, None, None)[:3]
    assert x is not None and image is not None
    if image.value is None or block is None or block.value is None:
        return [TensorType(x.dtype, (x.shape[0], -1, *(-1,) * max(image.shape[0], 0)))]
    sizes = tuple(int(n) for n in image.value)
    return [TensorType(x.dtype, (x.shape[0], x.shape[1] // prod(map(int, block.value)), *sizes))]


@computes("Col2Im", _folded)
def fold_columns(xs: Sequence[Array | None], attributes: Attributes) -> list[Array]:
    """The image whose blocks are the columns; where blocks overlap they are added."""
    x, image, block = (np.asarray(value) for value in xs[:3])
    rank = len(image)
    strides = attributes.get("strides") or [1] * rank
    dilations = attributes.get("dilations") or [1] * rank
    pads = attributes.get("pads") or [0] * 2 * rank
    padded = [int(n) + pads[i] + pads[i + rank] for i, n in enumerate(image)]
    axes = list(zip(padded, block.tolist(), dilations, strides, strict=True))
    counts = [(p - d * (k - 1) - 1) // s + 1 for p, k, d, s in axes]
    parts = x.reshape(x.shape[0], -1, *block.tolist(), *counts)
    result = np.zeros((*parts.shape[:2], *padded), x.dtype)
    whole: tuple[Any, ...] = (slice(None), slice(None))
    for cell in np.ndindex(*block.tolist()):
        region = tuple(
            slice(c * d, c * d + s * (n - 1) + 1, s)
            for c, d, s, n in zip(cell, dilations, strides, counts, strict=True)
        )
        result[whole + region] += parts[whole + cell]
    return [result[whole + tuple(slice(pads[i], pads[i] + int(n)) for i, n in enumerate(image))]]


def _unpooled(xs: Sequence[TensorType | None], attributes: Attributes) -> list[TensorType]:
    x = first(xs)
    given = xs[2] if len(xs) > 2 else None
    if given is not None:
        shape = tuple(map(int, given.value)) if given.value is not None else (-1,) * x.rank
        return [TensorType(x.dtype, shape)]
    return [TensorType(x.dtype, _spread(x.shape, attributes))]


def _spread(shape: tuple[int, ...], attributes: Attributes) -> tuple[int, ...]:
    kernel = attributes["kernel_shape"]
    strides = attributes.get("strides") or [1] * len(kernel)
    pads = attributes.get("pads") or [0] * 2 * len(kernel)
    sizes = [
        -1 if n < 0 else (n - 1) * s + k - pads[i] - pads[i + len(kernel)]
        for i, (n, s, k) in enumerate(zip(shape[2:], strides, kernel, strict=True))
    ]
    return (*shape[:2], *sizes)


@computes("MaxUnpool", _unpooled)
def unpool(xs: Sequence[Array | None], attributes: Attributes) -> list[Array]:
    """Every value where its maximum was; the indices count in the image that the pads and strides tell."""
    x, places = np.asarray(xs[0]), np.asarray(xs[1])
    natural = _spread(x.shape, attributes)
    given = xs[2] if len(xs) > 2 else None
    shape = natural if given is None else tuple(map(int, given))
    flat = np.zeros(prod(natural), x.dtype)
    flat[places.reshape(-1)] = x.reshape(-1)
    result = np.zeros(shape, x.dtype)
    result[tuple(map(slice, natural))] = flat.reshape(natural)
    return [result]


def _convolved(xs: Sequence[TensorType | None], attributes: Attributes) -> list[TensorType]:
    x, w, offset = first(xs), xs[1], xs[2]
    assert w is not None and offset is not None
    return [TensorType(x.dtype, (x.shape[0], w.shape[0], *offset.shape[2:]))]


@computes("DeformConv", _convolved)
def deformed_convolution(xs: Sequence[Array | None], attributes: Attributes) -> list[Array]:
    """A convolution of an image whose cells are read where offsets say, between four pixels, and masked."""
    x, w, offset, bias, mask = (*xs, None, None)[:5]
    assert x is not None and w is not None and offset is not None
    groups, parts = int(attributes.get("group", 1)), int(attributes.get("offset_group", 1))
    (kh, kw), (n, channels) = w.shape[2:], x.shape[:2]
    strides, dilations = attributes.get("strides") or [1, 1], attributes.get("dilations") or [1, 1]
    pads = attributes.get("pads") or [0, 0, 0, 0]
    height, width = offset.shape[2:]
    moved = offset.reshape(n, parts, kh * kw, 2, height, width)
    masks = np.ones((n, parts, kh * kw, height, width), x.dtype) if mask is None else mask
    masks = masks.reshape(n, parts, kh * kw, height, width)
    rows = np.arange(height)[:, None] * strides[0] - pads[0]
    columns = np.arange(width)[None, :] * strides[1] - pads[1]
    patches = np.zeros((n, channels, kh * kw, height, width), x.dtype)
    each = channels // parts
    for sample, part, cell in np.ndindex(n, parts, kh * kw):
        row = rows + cell // kw * dilations[0] + moved[sample, part, cell, 0]
        column = columns + cell % kw * dilations[1] + moved[sample, part, cell, 1]
        image = x[sample, part * each : (part + 1) * each]
        patches[sample, part * each : (part + 1) * each, cell] = (
            _between(image, row, column) * masks[sample, part, cell]
        )
    grouped = patches.reshape(n, groups, channels // groups * kh * kw, height * width)
    weights = w.reshape(groups, w.shape[0] // groups, -1)
    y = np.einsum("goc,ngcp->ngop", weights, grouped).reshape(n, w.shape[0], height, width)
    return [np.asarray(y if bias is None else y + bias[:, None, None], x.dtype)]


def _between(image: Array, rows: Array, columns: Array) -> Array:
    """Bilinear values, zero outside."""
    height, width = image.shape[1:]
    top, left = np.floor(rows).astype(np.int64), np.floor(columns).astype(np.int64)
    result = np.zeros((image.shape[0], *rows.shape), image.dtype)
    for down in (0, 1):
        for right in (0, 1):
            r, c = top + down, left + right
            share = (1 - np.abs(rows - r)) * (1 - np.abs(columns - c))
            inside = (r >= 0) & (r < height) & (c >= 0) & (c < width)
            result += image[:, np.clip(r, 0, height - 1), np.clip(c, 0, width - 1)] * (share * inside)
    return result
