"""Operators of onnxruntime's own domain, against onnxruntime, at two batches."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

onnx = pytest.importorskip("onnx")
ort = pytest.importorskip("onnxruntime")
from onnx import helper, numpy_helper  # noqa: E402

import circle_train as ct  # noqa: E402
from circle_train.ir import Role  # noqa: E402
from circle_train.ir.tensor_type import Array  # noqa: E402

RNG = np.random.default_rng(0)


def f(*shape: int) -> Array:
    return RNG.normal(size=shape).astype(np.float32)


def u8(*shape: int) -> Array:
    return RNG.integers(0, 256, shape).astype(np.uint8)


S = np.float32
Z = np.uint8(120)
CASES: dict[str, tuple[str, list[Any], dict[str, Any]]] = {
    "conv relu": ("FusedConv", ["x:3,6,6", f(4, 3, 3, 3), f(4)], {"activation": "Relu"}),
    "conv clip": ("FusedConv", ["x:3,6,6", f(4, 3, 1, 1)], {"activation": "Clip", "activation_params": [-0.5, 0.5]}),
    "conv leaky": ("FusedConv", ["x:3,6,6", f(4, 3, 1, 1)], {"activation": "LeakyRelu", "activation_params": [0.2]}),
    "matmul": ("FusedMatMul", ["x:5,6", f(7, 6)], {"transB": 1, "alpha": 0.5}),
    "gemm": ("FusedGemm", ["x:6", f(6, 4), f(4)], {"activation": "Relu"}),
    "add": ("QLinearAdd", ["q:4,5", S(0.02), Z, u8(4, 5), S(0.03), Z, S(0.04), Z], {}),
    "mul": ("QLinearMul", ["q:4,5", S(0.02), Z, u8(4, 5), S(0.03), Z, S(0.04), Z], {}),
    "sigmoid": ("QLinearSigmoid", ["q:7", S(0.05), Z, S(1 / 256), np.uint8(0)], {}),
    "leaky": ("QLinearLeakyRelu", ["q:7", S(0.05), Z, S(0.05), Z], {"alpha": 0.1}),
    "mean": ("QLinearGlobalAveragePool", ["q:3,5,5", S(0.05), Z, S(0.05), Z], {}),
    "pool": ("QLinearAveragePool", ["q:3,6,6", S(0.05), Z, S(0.05), Z], {"kernel_shape": [2, 2], "strides": [2, 2]}),
    "concat": ("QLinearConcat", [S(0.05), Z, "q:4", S(0.03), Z, "q:4", S(0.06), Z], {"axis": 1}),
    "softmax": ("QLinearSoftmax", ["q:9", S(0.05), Z, S(1 / 256), np.uint8(0)], {"axis": -1, "opset": 13}),
    "qgemm": ("QGemm", ["q:6", S(0.02), Z, u8(6, 4), S(0.01), Z, np.arange(4, dtype=np.int32) * 50, S(0.05), Z], {}),
    "to float": ("MatMulIntegerToFloat", ["q:6", u8(6, 4), S(0.02), S(0.01), Z, Z, f(4)], {}),
    "dynamic": ("DynamicQuantizeMatMul", ["x:6", u8(6, 4), S(0.01), Z, f(4)], {}),
    "4 bits": ("MatMulNBits", ["x:32", u8(8, 2, 8), np.abs(f(16))], {"K": 32, "N": 8, "bits": 4, "block_size": 16}),
    "skip norm": ("SkipLayerNormalization", ["x:5,8", "x:5,8", f(8), f(8), f(8)], {}),
    "skip rms": ("SkipSimplifiedLayerNormalization", ["x:5,8", "x:5,8", f(8)], {}),
    "attention": ("Attention", ["x:5,8", f(8, 24), f(24)], {"num_heads": 2}),
    "attention, causal": ("Attention", ["x:5,8", f(8, 24), f(24)], {"num_heads": 2, "unidirectional": 1}),
    "heads": ("MultiHeadAttention", ["x:5,8", "x:7,8", "x:7,8", f(24)], {"num_heads": 2}),
    "groups": (
        "GroupQueryAttention",
        ["x:5,32", "x:5,16", "x:5,16", None, None, np.array([4, 4], np.int32), np.array([5], np.int32)],
        {"num_heads": 4, "kv_num_heads": 2},
    ),
    "groups, rotated": (
        "GroupQueryAttention",
        ["x:5,64", "x:5,32", "x:5,32", None, None, np.array([4, 4], np.int32), np.array([5], np.int32),
         np.cos(f(8, 8)), np.sin(f(8, 8))],
        {"num_heads": 4, "kv_num_heads": 2, "do_rotary": 1},
    ),
    "rotary": ("RotaryEmbedding", ["x:2,5,8", np.array([2]), np.cos(f(9, 4)), np.sin(f(9, 4))], {}),
    "rotary, in pairs": (
        "RotaryEmbedding", ["x:2,5,8", np.array([0]), np.cos(f(9, 4)), np.sin(f(9, 4))], {"interleaved": 1}
    ),
    "embedding": (
        "EmbedLayerNormalization",
        ["i:5", "i:5", f(2, 8), f(6, 8), f(2, 8), f(8), f(8), "i:5"], {"epsilon": 1e-6},
    ),
    "lstm": (
        "DynamicQuantizeLSTM",
        ["t:3,4", u8(1, 4, 20), u8(1, 5, 20), f(1, 40), None, None, None, None, np.array([0.01], np.float32),
         np.array([120], np.uint8), np.array([0.01], np.float32), np.array([120], np.uint8)],
        {"hidden_size": 5},
    ),
}  # fmt: skip
KINDS = {"x": np.float32, "q": np.uint8, "i": np.int32, "t": np.float32}


def model(case: str) -> tuple[bytes, dict[str, tuple[str, tuple[int, ...]]]]:
    """The operator alone; its inputs that are no constants, by name."""
    op, operands, attributes = CASES[case]
    names, constants, given = [], [], {}
    for index, operand in enumerate(operands):
        name = f"in{index}" if operand is not None else ""
        names.append(name)
        if isinstance(operand, str):
            kind, sizes = operand.split(":")
            given[name] = kind, tuple(map(int, sizes.split(",")))
        elif operand is not None:
            constants.append(numpy_helper.from_array(np.asarray(operand), name))
    outputs = {"GroupQueryAttention": ["y", "k", "v"], "EmbedLayerNormalization": ["y", "m"]}.get(op, ["y"])
    node = helper.make_node(op, names, outputs, domain="com.microsoft", **attributes)
    kinds = {n: helper.np_dtype_to_tensor_dtype(np.dtype(KINDS[k])) for n, (k, _) in given.items()}
    shapes = {n: [s[0], "N", *s[1:]] if k == "t" else ["N", *s] for n, (k, s) in given.items()}
    graph = helper.make_graph(
        [node], "g", [helper.make_tensor_value_info(n, kinds[n], shapes[n]) for n in given],
        [onnx.ValueInfoProto(name=name) for name in outputs], constants,
    )  # fmt: skip
    opsets = [helper.make_opsetid("", 18), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=8).SerializeToString(), given


@pytest.mark.parametrize("case", CASES)
def test_as_onnxruntime_computes_it(case: str) -> None:
    content, given = model(case)
    infer, runtime = ct.InferenceSession(ct.load(content)), ort.InferenceSession(content)
    for batch in (2,) if case.startswith("groups") else (1, 2):
        feeds = {}
        for name, (kind, sizes) in given.items():
            shape = (sizes[0], batch, *sizes[1:]) if kind == "t" else (batch, *sizes)
            feeds[name] = {"q": u8, "i": lambda *s: RNG.integers(0, 2, s).astype(np.int32)}.get(kind, f)(
                *shape
            )
        for ours, theirs in zip(infer.run(None, feeds), runtime.run(None, feeds), strict=True):
            assert ours.shape == theirs.shape and ours.dtype == theirs.dtype
            step = 1 if theirs.dtype == np.uint8 else 0.02 if case == "lstm" else 1e-4
            np.testing.assert_allclose(
                ours.astype(np.float64), theirs.astype(np.float64), rtol=1e-4, atol=step
            )


def test_zeros_alone_are_rounded_to_zeros() -> None:
    """Their range has no steps."""
    content, _ = model("dynamic")
    feeds = {"in0": np.zeros((2, 6), np.float32)}
    (ours,), (theirs,) = (
        ct.InferenceSession(ct.load(content)).run(None, feeds),
        ort.InferenceSession(content).run(None, feeds),
    )
    np.testing.assert_allclose(ours, theirs, rtol=1e-6)


def test_scales_of_an_lstms_weights_are_not_trained() -> None:
    content, _ = model("lstm")
    constants = {t.name: t for t in ct.load(content).module.main.all_tensors() if t.is_constant}
    scales = [constants[name] for name in ("in8", "in10") if name in constants]
    assert len(scales) == 2 and all(Role.FIXED in tensor.role for tensor in scales)
