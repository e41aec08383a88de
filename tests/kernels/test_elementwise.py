"""Chains, softmax, losses, reductions, copies, gathers and norms against float64."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from native import CONSTANTS as C
from native import run, struct, tiers
from test_kernels import SCALARS, UPDATES, Arrays, check, rand, updated

erf = np.vectorize(math.erf)


def elements(array: np.ndarray, shape: tuple[int, ...]) -> list[int]:
    """Element strides of `array` broadcast to `shape`."""
    return [s // array.itemsize for s in np.broadcast_to(array, shape).strides] + [0] * (8 - len(shape))


DTYPES = {np.dtype(np.float32): 0, np.dtype(np.int32): 1, np.dtype(np.uint8): 2, np.dtype(np.int64): 3}


def tensor(array: np.ndarray, shape: tuple[int, ...], reg: int = 0) -> Any:
    return struct(
        "ct_chain_tensor",
        data=array.ctypes.data,
        strides=elements(array, shape),
        dtype=DTYPES[array.dtype],
        reg=reg,
    )


def chain(inputs: list[np.ndarray], outputs: list[tuple[np.ndarray, int]], ops: list[tuple[Any, ...]]) -> Any:
    """ops: (name, dst, a, b, c, imm)."""
    shape = outputs[0][0].shape
    made = [
        struct("ct_chain_op", op=C["CT_OP_" + o[0]], dst=o[1], a=o[2], b=o[3], c=o[4], imm=o[5]) for o in ops
    ]
    return struct(
        "ct_chain_args",
        inputs=[tensor(x, shape) for x in inputs],
        input_count=len(inputs),
        op_count=len(ops),
        outputs=[tensor(y, shape, reg) for y, reg in outputs],
        output_count=len(outputs),
        ops=made,
        shape=list(shape) + [0] * (8 - len(shape)),
        rank=len(shape),
    )


def phi(x: np.ndarray) -> np.ndarray:
    return 0.5 + 0.5 * erf(x / math.sqrt(2))


def gelu_tanh(x: np.ndarray) -> np.ndarray:
    return 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


UNARY: dict[str, tuple[Callable[[np.ndarray], np.ndarray], float, float, float]] = {
    "NEG": (lambda x: -x, -9, 9, 0),
    "ABS": (np.abs, -9, 9, 0),
    "SIGN": (np.sign, -2, 2, 0),
    "SQUARE": (np.square, -9, 9, 1e-7),
    "SQRT": (np.sqrt, 0, 9, 1e-7),
    "RSQRT": (lambda x: x**-0.5, 0.1, 9, 2e-7),
    "RECIPROCAL": (lambda x: 1 / x, 0.1, 9, 1e-7),
    "EXP": (np.exp, -87, 88, 2e-7),
    "LOG": (np.log, 1e-30, 1e30, 2e-7),
    "TANH": (np.tanh, -12, 12, 2e-7),
    "LOGISTIC": (lambda x: 1 / (1 + np.exp(-x)), -30, 30, 3e-7),
    "ERF": (erf, -5, 5, 1.5e-7),
    "FLOOR": (np.floor, -9, 9, 0),
    "CEIL": (np.ceil, -9, 9, 0),
    "ROUND": (np.round, -9, 9, 0),
    "SIN": (np.sin, -9, 9, 1e-6),
    "COS": (np.cos, -9, 9, 1e-6),
    "SOFTPLUS": (lambda x: np.log1p(np.exp(x)), -40, 40, 1e-6),
}


@pytest.mark.parametrize("name", UNARY)
def test_functions_are_accurate(name: str) -> None:
    """The relative error of each function over its range, element by element."""
    f, low, high, tolerance = UNARY[name]
    x = np.linspace(low, high, 200001).astype(np.float32)
    if name == "LOG":
        x = np.logspace(-37, 37, 200001).astype(np.float32)
    want = f(x.astype(np.float64))
    for tier in tiers():
        y = np.zeros_like(x)
        assert run("CHAIN", chain([x], [(y, 1)], [(name, 1, 0, 0, 0, 0)]), 1, tier) == 0
        error = np.abs(y - want) / np.maximum(np.abs(want), 1e-3 if name in ("SIN", "COS", "LOG") else 1e-37)
        assert error.max() <= tolerance, (tier, error.max(), x[error.argmax()])


@pytest.mark.parametrize("name", ["TANH", "ERF"])
def test_saturated_functions_are_one(name: str) -> None:
    """One step beside 1 would move the range of what is quantized after, and with it a rounding."""
    x = np.array([9.1, 12, 100, 1e30, np.inf], np.float32)
    for tier in tiers():
        y = np.zeros(10, np.float32)
        assert run("CHAIN", chain([np.concatenate([x, -x])], [(y, 1)], [(name, 1, 0, 0, 0, 0)]), 1, tier) == 0
        assert y.tolist() == [1.0] * 5 + [-1.0] * 5


BINARY: dict[str, Callable[[np.ndarray, np.ndarray], np.ndarray]] = {
    "ADD": np.add,
    "SUB": np.subtract,
    "MUL": np.multiply,
    "DIV": np.divide,
    "MAX": np.maximum,
    "MIN": np.minimum,
    "RELU_MASK": lambda a, b: b * (a > 0),
    "RELU6_MASK": lambda a, b: b * ((a > 0) & (a < 6)),
    "RELU_N1_TO_1_MASK": lambda a, b: b * (np.abs(a) < 1),
    "TANH_GRAD": lambda a, b: b * (1 - a * a),
    "LOGISTIC_GRAD": lambda a, b: b * a * (1 - a),
    "LESS": np.less,
    "LESS_EQUAL": np.less_equal,
    "GREATER": np.greater,
    "GREATER_EQUAL": np.greater_equal,
    "EQUAL": np.equal,
    "NOT_EQUAL": np.not_equal,
    "POW": lambda a, b: np.abs(a) ** b,
    "GELU_GRAD": lambda a, b: b * (phi(a) + a * np.exp(-a * a / 2) / math.sqrt(2 * math.pi)),
    "GELU_TANH_GRAD": lambda a, b: b * (gelu_tanh(a + 1e-6) - gelu_tanh(a - 1e-6)) / 2e-6,
    "HARD_SWISH_GRAD": lambda a, b: b * np.where(a <= -3, 0, np.where(a >= 3, 1, (2 * a + 3) / 6)),
    "LEAKY_RELU_GRAD": lambda a, b: np.where(a > 0, b, 0.25 * b),
    "ELU_GRAD": lambda a, b: np.where(a > 0, b, b * (a + 1)),
    "LEAKY_RELU": lambda a, b: np.where(a > 0, a, 0.25 * a),
    "ELU": lambda a, b: np.where(a > 0, a, np.expm1(a)),
    "GELU": lambda a, b: a * phi(a),
    "GELU_TANH": lambda a, b: gelu_tanh(a),
    "HARD_SWISH": lambda a, b: a * np.clip(a + 3, 0, 6) / 6,
    "COPY": lambda a, b: a,
    "CONST": lambda a, b: 0 * a + 0.25,
    "ADD_IMM": lambda a, b: a + 0.25,
    "MUL_IMM": lambda a, b: a * 0.25,
    "MAX_IMM": lambda a, b: np.maximum(a, 0.25),
    "MIN_IMM": lambda a, b: np.minimum(a, 0.25),
    "POW_IMM": lambda a, b: np.abs(a) ** 0.25,
    "LOGICAL_NOT": lambda a, b: a == 0,
    "LOGICAL_AND": lambda a, b: (a != 0) & (b != 0),
    "LOGICAL_OR": lambda a, b: (a != 0) | (b != 0),
}


@pytest.mark.parametrize("name", BINARY)
@pytest.mark.parametrize(
    "shapes", [((7, 33), (7, 33)), ((5, 1, 40), (3, 1)), ((2000,), (1,)), ((3, 700), (700,)), ((1,), (1,))]
)
def test_operations_broadcast(name: str, shapes: tuple[tuple[int, ...], tuple[int, ...]]) -> None:
    a, b = rand(*shapes[0], scale=3), rand(*shapes[1], scale=2, seed=1)
    if name.startswith("POW"):
        a = np.abs(a)
    if name.startswith("LOGICAL") or "EQUAL" in name:
        a, b = np.round(a), np.round(b)
    wide = np.broadcast(a, b).shape
    with np.errstate(over="ignore", invalid="ignore"):
        want = np.broadcast_to(BINARY[name](a.astype(np.float64), b.astype(np.float64)), wide)
    check(
        "CHAIN",
        lambda out: chain([a, b], [(out["y"], 2)], [(name, 2, 0, 1, 1, 0.25)]),
        {"y": np.zeros(wide, np.float32)},
        {"y": want},
        2e-6,
    )


def test_every_opcode_is_tested() -> None:
    named = {n.removeprefix("CT_OP_") for n in C if n.startswith("CT_OP_")} - {"COUNT"}
    assert named == set(UNARY) | set(BINARY) | {"SELECT", "MUL_ADD"}


def test_chain_of_several_with_types_and_aliases() -> None:
    x, mask, i, z = (
        rand(40, 70),
        (rand(40, 1) > 0).astype(np.uint8),
        np.arange(70, dtype=np.int32),
        rand(70, 40),
    )
    strided = z.T
    ops = [("MUL_ADD", 4, 0, 2, 3, 0), ("SELECT", 5, 1, 4, 0, 0), ("ADD", 4, 4, 5, 0, 0)]

    def make(out: Arrays) -> Any:
        return chain([out["x"], mask, i, strided], [(out["i"], 5), (out["x"], 4), (out["u"], 5)], ops)

    wide = x.astype(np.float64) * i + strided
    picked = np.where(mask != 0, wide, x)
    check(
        "CHAIN",
        make,
        {"x": x, "i": np.zeros((40, 70), np.int32), "u": np.zeros((40, 70), np.uint8)},
        {"x": wide + picked, "i": np.trunc(picked.astype(np.float32)), "u": picked != 0},
    )


@pytest.mark.parametrize("count", [1, 3, 7, 8, 9, 15, 16, 17, 1023, 1024, 1025, 1031, 5000])
def test_bits_are_made_and_read(count: int) -> None:
    """Made of what is not 0, one an element, and read as 1 and 0; unused bits of the last byte are 0."""
    x, dy = np.where(rand(count) > 0, rand(count, seed=1), 0).astype(np.float32), rand(count, seed=2)
    bits = np.packbits(x != 0, bitorder="little")

    def dense(array: np.ndarray, reg: int = 0) -> Any:
        dtype = C["CT_BITS"] if array.dtype == np.uint8 else C["CT_F32"]
        return struct("ct_chain_tensor", data=array.ctypes.data, strides=[1] + [0] * 7, dtype=dtype, reg=reg)

    for tier in tiers():
        for threads in (1, 3):
            made, passed = np.full_like(bits, 255), np.zeros_like(dy)
            for given, out, op in (([x], made, ("COPY", 1, 0)), ([made, dy], passed, ("RELU_MASK", 2, 0))):
                step = struct("ct_chain_op", op=C["CT_OP_" + op[0]], dst=op[1], a=op[2], b=1)
                args = struct(
                    "ct_chain_args", inputs=[dense(a) for a in given], outputs=[dense(out, op[1])], ops=[step],
                    shape=[count] + [0] * 7, rank=1, input_count=len(given), output_count=1, op_count=1,
                )  # fmt: skip
                assert run("CHAIN", args, threads, tier) == 0
            np.testing.assert_array_equal(made, bits)
            np.testing.assert_array_equal(passed, np.where(x != 0, dy, 0))


def test_special_values_pass_through() -> None:
    x = np.array([np.nan, np.inf, -np.inf, 0.0, -0.0, 89, -110, 1e-40], np.float32)
    with np.errstate(all="ignore"):
        wants = {
            "EXP": np.exp(x.astype(np.float64)),
            "TANH": np.tanh(x),
            "LOGISTIC": 1 / (1 + np.exp(-x.astype(np.float64))),
            "LOG": np.log(x.astype(np.float64)),
            "SQRT": np.sqrt(x),
            "MAX_IMM": np.maximum(x, 0),
            "ABS": np.abs(x),
        }
    for tier in tiers():
        for name, want in wants.items():
            y = np.zeros_like(x)
            run("CHAIN", chain([x], [(y, 1)], [(name, 1, 0, 0, 0, 0)]), 1, tier)
            with np.errstate(over="ignore"):
                np.testing.assert_allclose(
                    y, want.astype(np.float32), rtol=1e-6, atol=1e-37, err_msg=f"{name} {tier}"
                )


# ---- softmax and losses ----


@pytest.mark.parametrize("rows,cols", [(1, 1), (10, 10), (33, 1000), (5, 17), (70, 128)])
@pytest.mark.parametrize("beta", [1.0, 0.5, -2.0])
def test_softmax(rows: int, cols: int, beta: float) -> None:
    x, dy = rand(rows, cols, scale=5), rand(rows, cols, seed=1)
    e = np.exp(beta * x.astype(np.float64) - (beta * x).max(-1, keepdims=True))
    y = e / e.sum(-1, keepdims=True)
    sizes = {"rows": rows, "cols": cols, "beta": beta}
    zero = np.zeros_like(x)
    check(
        "SOFTMAX",
        lambda out: struct("ct_softmax_args", x=x, y=out["y"], **sizes),
        {"y": zero},
        {"y": y},
        2e-6,
    )
    check(
        "LOG_SOFTMAX",
        lambda out: struct("ct_softmax_args", x=x, y=out["y"], **sizes),
        {"y": zero},
        {"y": np.log(y)},
        2e-6,
    )
    y32, l32, before = y.astype(np.float32), np.log(y).astype(np.float32), rand(rows, cols, seed=2)
    check(
        "SOFTMAX_GRAD",
        lambda out: struct("ct_softmax_args", y=y32, dy=dy, dx=out["dx"], **sizes),
        {"dx": zero},
        {"dx": beta * y32 * (dy - (dy * y32.astype(np.float64)).sum(-1, keepdims=True))},
        3e-6 if cols > 1 else 1,
    )
    check(
        "LOG_SOFTMAX_GRAD",
        lambda out: struct("ct_softmax_args", y=l32, dy=dy, dx=out["dx"], accumulate=1, **sizes),
        {"dx": before},
        {"dx": before + beta * (dy - y * dy.sum(-1, keepdims=True, dtype=np.float64))},
        5e-6,
    )


@pytest.mark.parametrize("rows,cols", [(1, 2), (10, 10), (33, 1000), (70, 17)])
def test_cross_entropy(rows: int, cols: int) -> None:
    z = rand(rows, cols, scale=5)
    labels = np.random.default_rng(0).integers(0, cols, rows).astype(np.int32)
    dense = np.random.default_rng(1).random((rows, cols)).astype(np.float32)
    labels[0] = -1
    one_hot = np.where(labels[:, None] == np.arange(cols), 1.0, 0.0)
    zd = z.astype(np.float64)
    log_p = (
        zd - zd.max(-1, keepdims=True) - np.log(np.exp(zd - zd.max(-1, keepdims=True)).sum(-1, keepdims=True))
    )
    for t, mass, more in (
        (dense, dense.sum(-1, keepdims=True), {"target": dense}),
        (dense, 1.0, {"target": dense, "unit_targets": 1}),
        (one_hot, one_hot.sum(-1, keepdims=True), {"labels": labels, "ignore_label": -1}),
    ):
        per_row = -(t * log_p).sum(-1)
        check(
            "SOFTMAX_CROSS_ENTROPY",
            lambda out, more=more: struct(
                "ct_cross_entropy_args",
                logits=z,
                loss=out["loss"],
                row_loss=out["row"],
                dz=out["dz"],
                rows=rows,
                cols=cols,
                loss_scale=0.5,
                grad_scale=0.25,
                **more,
            ),
            {"loss": np.zeros(1, np.float32), "row": np.zeros(rows, np.float32), "dz": np.zeros_like(z)},
            {
                "loss": np.array([0.5 * per_row.sum()]),
                "row": per_row,
                "dz": 0.25 * (np.exp(log_p) * mass - t),
            },
            5e-6,
        )


def test_a_label_out_of_range_stops_the_run() -> None:
    z, dz = rand(2, 3), rand(2, 3)
    for bad in (3, -2):
        labels = np.array([0, bad], np.int32)
        args = struct(
            "ct_cross_entropy_args", logits=z, labels=labels, dz=dz, rows=2, cols=3, ignore_label=-1
        )
        assert run("SOFTMAX_CROSS_ENTROPY", args) == C["CT_BAD_INDEX"]


@pytest.mark.parametrize("size", [1, 100, 9001])
def test_regression_losses(size: int) -> None:
    p, t = rand(size), rand(size, seed=1)
    d = p.astype(np.float64) - t
    for kernel, value, slope in (
        ("MEAN_SQUARED_ERROR", d * d, 2 * d),
        ("MEAN_ABSOLUTE_ERROR", np.abs(d), np.sign(d)),
    ):
        check(
            kernel,
            lambda out: struct(
                "ct_regression_loss_args",
                p=p,
                target=t,
                loss=out["loss"],
                dp=out["dp"],
                size=size,
                loss_scale=0.5,
                grad_scale=0.25,
            ),
            {"loss": np.zeros(1, np.float32), "dp": np.zeros(size, np.float32)},
            {"loss": np.array([0.5 * value.sum()]), "dp": 0.25 * slope},
            1e-6,
        )


# ---- reductions, copies, gathers, norms ----


@pytest.mark.parametrize(
    "shape,axes",
    [
        ((10,), (0,)),
        ((3000, 33), (0,)),
        ((3000, 33), (1,)),
        ((50, 70, 40), (0, 2)),
        ((5, 60, 70, 3), (1, 2)),
        ((100000,), (0,)),
        ((4, 5, 6, 7, 8), (1, 3)),
        ((3, 4), ()),
        ((2, 9000), (1,)),
        ((40000, 5), (0,)),
        ((1, 8, 1), (0, 1)),
    ],
)
@pytest.mark.parametrize("op", ["SUM", "MAX", "MIN", "SUM_SQUARES", "PROD"])
def test_reduce(shape: tuple[int, ...], axes: tuple[int, ...], op: str) -> None:
    x = rand(*shape)
    if op == "PROD":
        x = np.exp(x * 0.02).astype(np.float32)
    wide = x.astype(np.float64)
    f = {
        "SUM": np.sum,
        "MAX": np.max,
        "MIN": np.min,
        "SUM_SQUARES": lambda v, a: np.sum(v * v, a),
        "PROD": np.prod,
    }[op]
    scale = 0.5 if op.startswith("SUM") else 1.0
    want = np.asarray(f(wide, axes) * scale)
    before = rand(*want.shape) if want.shape else np.float32(3.0).reshape(())
    flags = [int(d in axes) for d in range(8)]
    check(
        "REDUCE",
        lambda out: struct(
            "ct_reduce_args",
            x=x,
            y=out["y"],
            shape=list(shape) + [0] * (8 - len(shape)),
            reduce=flags,
            rank=len(shape),
            op=C["CT_REDUCE_" + op],
            scale=scale,
            accumulate=1,
        ),
        {"y": np.asarray(before)},
        {"y": want + before},
        1e-6 if op != "PROD" else 1e-4,
    )


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
                    kind=C["CT_UPDATE_" + kind],
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


def test_an_index_out_of_range_stops_the_run() -> None:
    x, y = rand(4, 3), rand(2, 3)
    for bad in (4, -5):
        index = np.array([0, bad], np.int32)
        assert (
            run("GATHER", struct("ct_gather_args", x=x, y=y, index=index, outer=1, rows=4, width=3, count=2))
            == C["CT_BAD_INDEX"]
        )
        update = struct("ct_update", g=x)
        assert (
            run(
                "SCATTER_ADD",
                struct(
                    "ct_scatter_add_args", dy=y, index=index, outer=1, rows=4, width=3, count=2, update=update
                ),
            )
            == C["CT_BAD_INDEX"]
        )


@pytest.mark.parametrize("rows,cols", [(1, 5), (300, 256), (40, 17), (1000, 33)])
@pytest.mark.parametrize("kernel", ["LAYER_NORM", "RMS_NORM"])
def test_norm(rows: int, cols: int, kernel: str) -> None:
    x, add, gamma, beta, dy = (
        rand(rows, cols, scale=2),
        rand(rows, cols, seed=1),
        rand(cols),
        rand(cols, seed=1),
        rand(rows, cols, seed=2),
    )
    total = (x + add).astype(np.float64)
    mean = total.mean(-1, keepdims=True) if kernel == "LAYER_NORM" else np.zeros((rows, 1))
    rstd = 1 / np.sqrt(((total - mean) ** 2).mean(-1, keepdims=True) + 1e-5)
    h = (total - mean) * rstd
    shape32 = {
        "y": np.zeros_like(x),
        "sum": np.zeros_like(x),
        "mean": np.zeros((rows, 1), np.float32),
        "rstd": np.zeros((rows, 1), np.float32),
    }
    check(
        kernel,
        lambda out: struct(
            "ct_norm_args", x=x, add=add, gamma=gamma, beta=beta, rows=rows, cols=cols, eps=1e-5, **out
        ),
        shape32,
        {"y": h * gamma + beta, "rstd": rstd, "sum": total},
        5e-6,
    )
    plain = np.zeros_like(x)
    x64 = x.astype(np.float64)
    m = x64.mean(-1, keepdims=True) if kernel == "LAYER_NORM" else 0.0
    check(
        kernel,
        lambda out: struct("ct_norm_args", x=x, y=out["y"], rows=rows, cols=cols, eps=1e-5),
        {"y": plain},
        {"y": (x64 - m) / np.sqrt(((x64 - m) ** 2).mean(-1, keepdims=True) + 1e-5)},
        5e-6,
    )
    d = dy.astype(np.float64) * gamma
    dx = rstd * (
        d - (d.mean(-1, keepdims=True) if kernel == "LAYER_NORM" else 0) - h * (d * h).mean(-1, keepdims=True)
    )
    t32, m32, r32 = total.astype(np.float32), mean.astype(np.float32), rstd.astype(np.float32)
    before = rand(rows, cols, seed=7)
    check(
        kernel + "_GRAD",
        lambda out: struct(
            "ct_norm_grad_args",
            dy=dy,
            x=t32,
            gamma_values=gamma,
            mean=m32,
            rstd=r32,
            dx=out["dx"],
            rows=rows,
            cols=cols,
            gamma=struct("ct_update", g=out["gamma"]),
            beta=struct("ct_update", g=out["beta"]),
            accumulate=1,
            has_gamma=1,
            has_beta=1,
        ),
        {"dx": before, "gamma": np.zeros(cols, np.float32), "beta": np.zeros(cols, np.float32)},
        {"dx": dx + before, "gamma": (dy * h).sum(0), "beta": dy.sum(0, dtype=np.float64)},
        1e-5,
    )
