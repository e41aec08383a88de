"""Chains of elementwise operations against float64."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from native import run, struct, tiers
from sized.call import Arrays, Call, rand, stored

from circle_train.backends.native.engine import abi

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
        struct("ct_chain_operation", op=abi.ChainOp[o[0]], dst=o[1], a=o[2], b=o[3], c=o[4], imm=o[5])
        for o in ops
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
    "ROUND_BF16": (lambda x: np.ldexp(np.rint(np.frexp(x)[0] * 256) / 256, np.frexp(x)[1]), -40, 40, 0.0),
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
    "FLOOR_MOD": np.mod,
    "ATAN2": np.arctan2,
}


@pytest.mark.parametrize("name", BINARY)
@pytest.mark.parametrize(
    "shapes",
    [
        ((7, 33), (7, 33)),
        ((5, 1, 40), (3, 1)),
        ((2000,), (1,)),
        ((3, 700), (700,)),
        ((130, 48), (48,)),
        ((1,), (1,)),
    ],
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
    ops = [(name, 2, 0, 1, 1, 0.25)]
    stored(lambda out: chain([a, b], [(out["y"], 2)], ops), y=want).agrees("CHAIN", 2e-6)


def test_every_opcode_is_tested() -> None:
    assert {op.name for op in abi.ChainOp} == set(UNARY) | set(BINARY) | {"SELECT", "MUL_ADD"}


@pytest.mark.parametrize("width", [1, 7, 16, 24, 70, 256])
def test_short_rows_are_there_for_every_tile(width: int) -> None:
    """Also where an operation has written over the register that a row came in."""
    x, scale, shift = rand(3000 // width, width), rand(width, seed=1), np.arange(width, dtype=np.int32)
    ops = [("MUL", 1, 0, 1, 0, 0), ("ADD", 2, 1, 2, 0, 0)]
    make = stored(
        lambda out: chain([x, scale, shift], [(out["y"], 2)], ops), y=x.astype(np.float64) * scale + shift
    )
    make.agrees("CHAIN")


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
    before = {"x": x, "i": np.zeros((40, 70), np.int32), "u": np.zeros((40, 70), np.uint8)}
    wants = {"x": wide + picked, "i": np.trunc(picked.astype(np.float32)), "u": picked != 0}
    Call(make, before, wants).agrees("CHAIN")


@pytest.mark.parametrize("count", [1, 3, 7, 8, 9, 15, 16, 17, 1023, 1024, 1025, 1031, 5000])
def test_bits_are_made_and_read(count: int) -> None:
    """Made of what is not 0, one an element, and read as 1 and 0; unused bits of the last byte are 0."""
    x, dy = np.where(rand(count) > 0, rand(count, seed=1), 0).astype(np.float32), rand(count, seed=2)
    bits = np.packbits(x != 0, bitorder="little")

    def dense(array: np.ndarray, reg: int = 0) -> Any:
        dtype = abi.DataType.BITS if array.dtype == np.uint8 else abi.DataType.F32
        return struct("ct_chain_tensor", data=array.ctypes.data, strides=[1] + [0] * 7, dtype=dtype, reg=reg)

    for tier in tiers():
        for threads in (1, 3):
            made, passed = np.full_like(bits, 255), np.zeros_like(dy)
            for given, out, op in (([x], made, ("COPY", 1, 0)), ([made, dy], passed, ("RELU_MASK", 2, 0))):
                step = struct("ct_chain_operation", op=abi.ChainOp[op[0]], dst=op[1], a=op[2], b=1)
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
