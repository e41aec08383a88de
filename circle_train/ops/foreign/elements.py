"""Operators on elements, their bits, and small matrices."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise

import numpy as np

from circle_train.ir import DType, TensorType
from circle_train.ir.tensor_type import Array
from circle_train.ops.foreign.operator import Attributes, broadcast, computes, first, same


@computes("BitwiseAnd", broadcast)
def bitwise_and(xs: Sequence[Array | None], attributes: Attributes) -> list[Array]:
    return [np.bitwise_and(np.asarray(xs[0]), np.asarray(xs[1]))]


@computes("BitwiseOr", broadcast)
def bitwise_or(xs: Sequence[Array | None], attributes: Attributes) -> list[Array]:
    return [np.bitwise_or(np.asarray(xs[0]), np.asarray(xs[1]))]


def _matrices(xs: Sequence[TensorType | None], attributes: Attributes) -> list[TensorType]:
    return [TensorType(first(xs).dtype, first(xs).shape[:-2])]


@computes("Det", _matrices)
def determinant(xs: Sequence[Array | None], attributes: Attributes) -> list[Array]:
    x = np.asarray(xs[0])
    return [np.asarray(np.linalg.det(x.astype(np.float64)), x.dtype)]


def _same_bits(xs: Sequence[TensorType | None], attributes: Attributes) -> list[TensorType]:
    return [TensorType(DType[attributes["to"]], first(xs).shape)]


@computes("BitCast", _same_bits)
def bit_cast(xs: Sequence[Array | None], attributes: Attributes) -> list[Array]:
    kind = DType[attributes["to"]].numpy
    x = np.asarray(xs[0])
    return [np.frombuffer(x.tobytes(), kind).reshape(x.shape)]


REDUCTIONS: dict[str, Callable[..., Array]] = {
    "none": lambda old, new: new,
    "add": np.add,
    "mul": np.multiply,
    "max": np.maximum,
    "min": np.minimum,
}


@computes("ScatterElements", same)
def scatter_elements(xs: Sequence[Array | None], attributes: Attributes) -> list[Array]:
    """Updates at indices along one axis."""
    data, indices, updates = (np.asarray(x) for x in xs[:3])
    axis = int(attributes.get("axis", 0))
    places: list[Array] = list(np.indices(indices.shape))
    places[axis] = np.where(indices < 0, indices + data.shape[axis], indices)
    return [_scattered(data, tuple(p.reshape(-1) for p in places), updates.reshape(-1), attributes)]


@computes("ScatterND", same)
def scatter_nd(xs: Sequence[Array | None], attributes: Attributes) -> list[Array]:
    """Slices of updates at places of several axes."""
    data, indices, updates = (np.asarray(x) for x in xs[:3])
    depth = indices.shape[-1]
    places = tuple(
        np.where(column < 0, column + size, column)
        for column, size in zip(indices.reshape(-1, depth).T, data.shape, strict=False)
    )
    return [_scattered(data, places, updates.reshape(-1, *data.shape[depth:]), attributes)]


def _scattered(data: Array, places: tuple[Array, ...], updates: Array, attributes: Attributes) -> Array:
    result = data.copy()
    reduction = attributes.get("reduction", "none")
    if reduction == "none":
        result[places] = updates
    else:
        getattr(REDUCTIONS[reduction], "at")(result, places, updates)  # noqa: B009 -- ufuncs have it
    return result


@computes("TensorScatter", same)
def tensor_scatter(xs: Sequence[Array | None], attributes: Attributes) -> list[Array]:
    """A cache with an update written into it, for each sample from its own place on."""
    cache, update = np.asarray(xs[0]).copy(), np.asarray(xs[1])
    starts = np.zeros(cache.shape[0], np.int64) if len(xs) < 3 or xs[2] is None else xs[2]
    axis = int(attributes.get("axis", -2)) % cache.ndim
    circular = attributes.get("mode", "linear") == "circular"
    for sample, start in enumerate(starts.tolist()):
        places = np.arange(update.shape[axis]) + start
        places = places % cache.shape[axis] if circular else places
        moved = np.moveaxis(cache[sample], axis - 1, 0)
        moved[places] = np.moveaxis(update[sample], axis - 1, 0)
    return [cache]


def _weights(xs: Sequence[TensorType | None], attributes: Attributes) -> list[TensorType]:
    x = first(xs)
    last = 1 + max(attributes["ngram_indexes"])
    return [TensorType(DType.FLOAT32, (*x.shape[:-1], last))]


@computes("TfIdfVectorizer", _weights)
def count_ngrams(xs: Sequence[Array | None], attributes: Attributes) -> list[Array]:
    """How often each known sequence of numbers stands in a row, with up to max_skip_count others between."""
    x = np.asarray(xs[0])
    pool, starts = list(attributes["pool_int64s"]), list(attributes["ngram_counts"])
    columns = list(attributes["ngram_indexes"])
    low, high = int(attributes["min_gram_length"]), int(attributes["max_gram_length"])
    known: dict[tuple[int, ...], int] = {}
    for length, (begin, end) in enumerate(pairwise([*starts, len(pool)]), 1):
        for at in range(max(begin, 0), min(end, len(pool)), length):
            known[tuple(pool[at : at + length])] = columns[len(known)]
    lengths = [n for n in sorted({*map(len, known)}) if low <= n <= high]
    skips = range(min(int(attributes["max_skip_count"]) + 1, x.shape[-1]))
    result = np.zeros((*x.shape[:-1], 1 + max(columns)), np.float32)
    for row, counts in zip(x.reshape(-1, x.shape[-1]), result.reshape(-1, result.shape[-1]), strict=True):
        for length in lengths:
            for skip in skips if length > 1 else range(1):
                step = skip + 1
                for at in range(len(row) - (length - 1) * step):
                    found = known.get(tuple(row[at : at + length * step : step].tolist()))
                    if found is not None:
                        counts[found] += 1
    return [_weighted(result, attributes, columns)]


def _weighted(counts: Array, attributes: Attributes, columns: list[int]) -> Array:
    mode, weights = attributes["mode"], attributes.get("weights")
    known = counts if mode == "TF" else np.minimum(counts, 1)
    if mode == "TF" or weights is None:
        return known
    by_column = np.ones(counts.shape[-1], np.float32)
    by_column[columns] = weights
    return (counts if mode == "TFIDF" else known) * by_column
