"""Copies, fills, gathers and scatters against numpy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from native import run, struct
from sized.call import Arrays, Call, added, args, rand, stored, summing
from test_elementwise import elements
from test_kernels import SCALARS, UPDATES, moved, states

from circle_train.backends.native.engine import abi


@pytest.mark.parametrize("dtype", [np.uint8, np.float32, np.int64])
@pytest.mark.parametrize(
    "shape,order",
    [
        ((5, 7), (1, 0)),
        ((200, 300), (1, 0)),
        ((2, 9, 3, 8), (0, 2, 1, 3)),
        ((2, 9, 3, 8), (0, 3, 1, 2)),
        ((3, 4, 5, 6, 7), (4, 2, 0, 3, 1)),
        ((17,), (0,)),
        ((2, 33, 65), (0, 2, 1)),
        ((2, 3, 50, 90), (0, 2, 3, 1)),
        ((2, 50, 90, 3), (0, 3, 1, 2)),
        ((2, 1, 2, 3, 2, 1, 2, 2), (7, 6, 5, 4, 3, 2, 1, 0)),
    ],
)
def test_copy(dtype: Any, shape: tuple[int, ...], order: tuple[int, ...]) -> None:
    x = (np.arange(np.prod(shape)) % 251).astype(dtype).reshape(shape)

    def make(view: np.ndarray, to: np.ndarray) -> Any:
        return struct(
            "ct_copy_args", x=view.ctypes.data, y=to.ctypes.data, shape=list(view.shape) + [0] * (8 - view.ndim),
            x_strides=elements(view, view.shape), y_strides=elements(to, to.shape), rank=view.ndim,
            element_size=view.itemsize,
        )  # fmt: skip

    turned = x.transpose(order)
    views = [turned, x[::-1], x[..., ::2], np.broadcast_to(x, (3, *shape)) if x.ndim < 8 else x]
    for view in views:
        before = {"y": np.zeros(view.shape, dtype)}
        Call(lambda out, view=view: make(view, out["y"]), before, {"y": view}).agrees("COPY", 0)
    room = np.zeros([s + 2 for s in shape], dtype)
    inner = tuple(slice(1, -1) for _ in shape)
    want = room.copy()
    want[inner] = x
    Call(lambda out: make(x, out["y"][inner]), {"y": room}, {"y": want}).agrees("COPY", 0)


@pytest.mark.parametrize("size", [1, 100, 70001])
def test_fill(size: int) -> None:
    bits = int(np.float32(1.5).view(np.int32))
    stored(args("ct_fill_args", size=size, value_bits=bits), y=np.full(size, 1.5)).agrees("FILL", 0)


def moving(kind: str, scalars: np.ndarray, **given: Any) -> Any:
    """What adds rows into weights by a rule."""

    def make(out: Arrays) -> Any:
        update = struct("ct_update", kind=abi.UpdateKind[kind], scalars=scalars, **out)
        return struct("ct_scatter_add_args", update=update, **given)

    return make


@pytest.mark.parametrize(
    "outer,rows,width,count", [(1, 50, 17, 400), (3, 7, 300, 5), (1, 5000, 64, 33), (2, 1, 1, 3)]
)
def test_gather_and_scatter(outer: int, rows: int, width: int, count: int) -> None:
    x, dy = rand(outer, rows, width), rand(outer, count, width, seed=1)
    index = np.random.default_rng(0).integers(-rows, rows, count).astype(np.int32)
    sizes: dict[str, Any] = {"outer": outer, "rows": rows, "width": width, "count": count, "index": index}
    stored(args("ct_gather_args", x=x, **sizes), y=x[:, index]).agrees("GATHER", 0)
    before, g = rand(outer, rows, width, seed=2), np.zeros((outer, rows, width))
    np.add.at(g, (slice(None), index), dy.astype(np.float64))
    for accumulate in (0, 1):
        make = summing("ct_scatter_add_args", accumulate, dy=dy, **sizes)
        added(make, before, update=g + before * accumulate).agrees("SCATTER_ADD", 1e-6)
    for kind in UPDATES if outer == 1 else ():
        weights = states(rows, width)
        make = moving(kind, SCALARS, dy=dy, **sizes)
        Call(make, weights, moved(kind, g[0], weights)).agrees("SCATTER_ADD", 2e-6)


@pytest.mark.parametrize("kind", ["SGD", "ADAGRAD"])
@pytest.mark.parametrize("width", [1, 33, 300])
def test_without_decay_only_the_rows_that_are_named_move(kind: str, width: int) -> None:
    """Row 7 is named so often that its positions span several threads' work."""
    rows, count = 900, 400
    scalars = SCALARS.copy()
    scalars[abi.Scalar.DECAY] = 0
    index = np.where(np.arange(count) % 3, 7, np.arange(count) * 11 % rows - rows // 2).astype(np.int32)
    dy, weights, g = rand(count, width, seed=1) / 16, states(rows, width), np.zeros((rows, width))
    for j, row in enumerate(index):
        g[row] += dy[j]
    sizes = {"outer": 1, "rows": rows, "width": width, "count": count, "index_bytes": 4, "index": index}
    make = moving(kind, scalars, dy=dy, **sizes)
    Call(make, weights, moved(kind, g, weights, scalars)).agrees("SCATTER_ADD", 2e-6)


def test_an_index_out_of_range_stops_the_run() -> None:
    x, y = rand(4, 3), rand(2, 3)
    for bad in (4, -5):
        given = {"index": np.array([0, bad], np.int32), "outer": 1, "rows": 4, "width": 3, "count": 2}
        assert run("GATHER", struct("ct_gather_args", x=x, y=y, **given)) == abi.Status.BAD_INDEX
        scatter = struct("ct_scatter_add_args", dy=y, update=struct("ct_update", g=x), **given)
        assert run("SCATTER_ADD", scatter) == abi.Status.BAD_INDEX
