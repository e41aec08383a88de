"""Copies, and what takes elements by their places, as calls of given extents."""

from __future__ import annotations

from typing import Any

import numpy as np
from test_elementwise import elements

from circle_train.backends.native.engine import abi
from sized.call import Call, args, rand, stored, summing, zeros


def copied(outer: int, middle: int, inner: int) -> Call:
    x = rand(outer, middle, inner)
    view = x.transpose(0, 2, 1)
    dense = np.ascontiguousarray(view)
    make = args(
        "ct_copy_args", x=x, shape=[*view.shape] + [0] * 5, rank=3, element_size=4,
        x_strides=elements(view, view.shape), y_strides=elements(dense, view.shape),
    )  # fmt: skip
    return stored(make, y=view)


def filled(size: int) -> Call:
    make = args("ct_fill_args", size=size, value_bits=3)
    return Call(make, {"y": np.zeros(size, np.int32)}, {"y": np.full(size, 3)})


def rows_by_index(outer: int, rows: int, width: int, count: int) -> tuple[np.ndarray, dict[str, Any]]:
    """Indices of rows that are there, and what both kernels are told of them."""
    index = np.arange(count if rows else 0, dtype=np.int32) * 5 % max(rows, 1)
    sizes = {"outer": outer, "rows": rows, "width": width, "count": len(index), "index_bytes": 4}
    return index, {"index": index, **sizes}


def gathered(outer: int, rows: int, width: int, count: int) -> Call:
    x, (index, given) = rand(outer, rows, width), rows_by_index(outer, rows, width, count)
    return stored(args("ct_gather_args", x=x, **given), y=x[:, index])


def scattered(outer: int, rows: int, width: int, count: int) -> Call:
    index, given = rows_by_index(outer, rows, width, count)
    dy, want = rand(outer, len(index), width), np.zeros((outer, rows, width))
    for j, row in enumerate(index):
        want[:, row] += dy[:, j]
    return stored(summing("ct_scatter_add_args", dy=dy, **given), update=want)


def extreme(outer: int, along: int, inner: int) -> Call:
    """Among few different numbers, so that the first of equals shows."""
    x = np.round(rand(outer, along, inner))
    make = args(
        "ct_extreme_args", x=x, outer=outer, size=along, inner=inner, op=abi.Reduce.MIN, place_bytes=8
    )
    return Call(make, {"place": np.full((outer, inner), 7, np.int64)}, {"place": x.argmin(1)})


def _largest(rows: int, most: int) -> tuple[np.ndarray, np.ndarray]:
    """Numbers with equals among them, and the places of the larger half."""
    x = np.round(rand(rows, most))
    return x, np.argsort(-x, axis=1, kind="stable")[:, : (most + 1) // 2]


def top(rows: int, most: int) -> Call:
    x, places = _largest(rows, most)
    make = args("ct_top_args", x=x, rows=rows, cols=most, k=places.shape[1])
    before = {"values": zeros(*places.shape), "places": np.zeros(places.shape, np.int32)}
    return Call(make, before, {"values": np.take_along_axis(x, places, 1), "places": places})


def top_gradient(rows: int, most: int) -> Call:
    x, places = _largest(rows, most)
    dy, dx = rand(*places.shape, seed=1), zeros(rows, most)
    np.put_along_axis(dx, places, dy, 1)
    return stored(args("ct_top_args", x=x, rows=rows, cols=most, k=places.shape[1], dy=dy), dx=dx)


def flat_index(count: int, width: int) -> Call:
    """Of three coordinates, the last ones counted from the end."""
    sizes = (width, 3, 2)
    at = np.stack([np.arange(count) * 7 % size for size in sizes], -1).reshape(count, 3)
    given = (at - [0, 0, 2]).astype(np.int64)
    make = args(
        "ct_flat_index_args", coordinates=given, sizes=[*sizes, 0, 0, 0, 0, 0], count=count, depth=3,
        index_bytes=8, wraps=1,
    )  # fmt: skip
    want = np.ravel_multi_index(tuple(at.T), sizes)
    return Call(make, {"flat": np.full(count, 7, np.int32)}, {"flat": want})
