"""Copies, fills, gathers and scatters against numpy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from native import run, struct
from test_elementwise import elements
from test_kernels import SCALARS, UPDATES, check, rand, updated

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
        rank = view.ndim
        return struct(
            "ct_copy_args",
            x=view.ctypes.data,
            y=to.ctypes.data,
            shape=list(view.shape) + [0] * (8 - rank),
            x_strides=elements(view, view.shape),
            y_strides=elements(to, to.shape),
            rank=rank,
            element_size=view.itemsize,
        )

    turned = x.transpose(order)
    views = [turned, x[::-1], x[..., ::2], np.broadcast_to(x, (3, *shape)) if x.ndim < 8 else x]
    for view in views:
        check(
            "COPY",
            lambda out, view=view: make(view, out["y"]),
            {"y": np.zeros(view.shape, dtype)},
            {"y": view},
            0,
        )
    room = np.zeros([s + 2 for s in shape], dtype)
    inner = tuple(slice(1, -1) for _ in shape)
    want = room.copy()
    want[inner] = x
    check("COPY", lambda out: make(x, out["y"][inner]), {"y": room}, {"y": want}, 0)


@pytest.mark.parametrize("size", [1, 100, 70001])
def test_fill(size: int) -> None:
    bits = int(np.float32(1.5).view(np.int32))
    check(
        "FILL",
        lambda out: struct("ct_fill_args", y=out["y"], size=size, value_bits=bits),
        {"y": rand(size)},
        {"y": np.full(size, 1.5)},
        0,
    )


@pytest.mark.parametrize(
    "outer,rows,width,count", [(1, 50, 17, 400), (3, 7, 300, 5), (1, 5000, 64, 33), (2, 1, 1, 3)]
)
def test_gather_and_scatter(outer: int, rows: int, width: int, count: int) -> None:
    x, dy = rand(outer, rows, width), rand(outer, count, width, seed=1)
    index = np.random.default_rng(0).integers(-rows, rows, count).astype(np.int32)
    sizes = {"outer": outer, "rows": rows, "width": width, "count": count, "index": index}
    check(
        "GATHER",
        lambda out: struct("ct_gather_args", x=x, y=out["y"], **sizes),
        {"y": np.zeros((outer, count, width), np.float32)},
        {"y": x[:, index]},
        0,
    )
    before = rand(outer, rows, width, seed=2)
    g = np.zeros((outer, rows, width))
    np.add.at(g, (slice(None), index), dy.astype(np.float64))
    for accumulate in (0, 1):
        check(
            "SCATTER_ADD",
            lambda out, accumulate=accumulate: struct(
                "ct_scatter_add_args",
                dy=dy,
                update=struct("ct_update", g=out["g"], accumulate=accumulate),
                **sizes,
            ),
            {"g": before},
            {"g": g + before * accumulate},
            1e-6,
        )
    if outer > 1:
        return
    for kind in UPDATES:
        w, m, v = rand(rows, width, seed=3), rand(rows, width, seed=4), np.abs(rand(rows, width, seed=5))
        w2, m2, v2 = updated(kind, SCALARS, g[0], w, m, v)
        check(
            "SCATTER_ADD",
            lambda out, kind=kind: struct(
                "ct_scatter_add_args",
                dy=dy,
                update=struct(
                    "ct_update",
                    kind=abi.UpdateKind[kind],
                    w=out["w"],
                    m=out["m"],
                    v=out["v"],
                    scalars=SCALARS,
                ),
                **sizes,
            ),
            {"w": w, "m": m, "v": v},
            {"w": w2, "m": m2, "v": v2},
            2e-6,
        )


@pytest.mark.parametrize("kind", ["SGD", "ADAGRAD"])
@pytest.mark.parametrize("width", [1, 33, 300])
def test_without_decay_only_the_rows_that_are_named_move(kind: str, width: int) -> None:
    """Row 7 is named so often that its positions span several threads' work."""
    rows, count = 900, 400
    scalars = SCALARS.copy()
    scalars[abi.Scalar.DECAY] = 0
    index = np.where(np.arange(count) % 3, 7, np.arange(count) * 11 % rows - rows // 2).astype(np.int32)
    dy, w = rand(count, width, seed=1) / 16, rand(rows, width)
    m, v = rand(rows, width, seed=4), np.abs(rand(rows, width, seed=5))
    g = np.zeros((rows, width))
    for j, row in enumerate(index):
        g[row] += dy[j]
    w2, m2, v2 = updated(kind, scalars, g, w, m, v)
    sizes = {"outer": 1, "rows": rows, "width": width, "count": count, "index_bytes": 4, "index": index}
    check(
        "SCATTER_ADD",
        lambda out: struct(
            "ct_scatter_add_args", dy=dy, update=struct("ct_update", kind=abi.UpdateKind[kind], scalars=scalars, **out),
            **sizes,
        ),
        {"w": w, "m": m, "v": v},
        {"w": w2, "m": m2, "v": v2},
        2e-6,
    )  # fmt: skip


def test_an_index_out_of_range_stops_the_run() -> None:
    x, y = rand(4, 3), rand(2, 3)
    for bad in (4, -5):
        index = np.array([0, bad], np.int32)
        assert (
            run("GATHER", struct("ct_gather_args", x=x, y=y, index=index, outer=1, rows=4, width=3, count=2))
            == abi.Status.BAD_INDEX
        )
        update = struct("ct_update", g=x)
        assert (
            run(
                "SCATTER_ADD",
                struct(
                    "ct_scatter_add_args", dy=y, index=index, outer=1, rows=4, width=3, count=2, update=update
                ),
            )
            == abi.Status.BAD_INDEX
        )
