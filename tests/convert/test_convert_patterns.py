"""Groups of ONNX nodes that become one operator."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import onnx
import pytest
import random_onnx
from near.models import near
from test_convert import array, compare, model, names, node

from circle_train import convert
from circle_train.convert.other.referee import evaluate
from circle_train.errors import CircleTrainError

GELU = [
    node("Div", "x root", "a"), node("Erf", "a", "b"), node("Add", "b one", "c"), node("Mul", "x c", "d"),
    node("Mul", "d half", "y"),
]  # fmt: skip


GELU_HALF_FIRST = [
    node("Mul", "x half", "h"), node("Div", "x root", "a"), node("Erf", "a", "b"), node("Add", "one b", "c"),
    node("Mul", "c h", "y"),
]  # fmt: skip


GELU_TANH = [
    node("Mul", "x x", "s"), node("Mul", "s x", "k"), node("Mul", "k small", "t"), node("Add", "x t", "u"),
    node("Mul", "u edge", "v"), node("Tanh", "v", "w"), node("Add", "w one", "z"), node("Mul", "x half", "h"),
    node("Mul", "h z", "y"),
]  # fmt: skip


SWISH = [
    node("Add", "x three", "a"),
    node("Clip", "a zero six", "b"),
    node("Mul", "x b", "c"),
    node("Div", "c six", "y"),
]


NUMBERS = {
    "root": 2**0.5, "one": 1.0, "half": 0.5, "small": 0.044715, "edge": (2 / np.pi) ** 0.5,
    "three": 3.0, "six": 6.0, "zero": 0.0,
}  # fmt: skip


@pytest.mark.parametrize(
    ("nodes", "expected"),
    [(GELU, "GELU"), (GELU_HALF_FIRST, "GELU"), (GELU_TANH, "GELU"), (SWISH, "HARD_SWISH")],
    ids=["erf", "half-first", "tanh", "hard-swish"],
)
def test_patterns_become_one_operator(nodes: list[Any], expected: str) -> None:
    used = {name for made in nodes for name in made.input} & set(NUMBERS)
    raw = model(nodes, {"x": [2, 7]}, {"y": [2, 7]}, **{n: np.array(NUMBERS[n], np.float32) for n in used})
    module = compare(raw, {"x": array(2, 7)})
    assert list(names(module)) == [expected]


RMS_NORM = [
    node("Pow", "x two", "a"), node("ReduceMean", "a", "b", axes=[-1]), node("Add", "b eps", "c"), node("Sqrt", "c", "d"),
    node("Reciprocal", "d", "e"), node("Mul", "x e", "f"), node("Mul", "g f", "y"),
]  # fmt: skip
UNIT_LENGTH = [
    node("Mul", "x x", "a"), node("ReduceSum", "a last", "b"), node("Sqrt", "b", "c"), node("Max", "c tiny", "d"),
    node("Div", "x d", "y"),
]  # fmt: skip
UNIT_LENGTH_SPREAD = [
    node("ReduceL2", "x", "a", axes=[-1]), node("Max", "a tiny", "b"), node("Shape", "x", "c"), node("Expand", "b c", "d"),
    node("Div", "x d", "y"),
]  # fmt: skip
RMS_DIVIDED = [
    node("Mul", "x x", "a"), node("ReduceMean", "a", "b", axes=[-1]), node("Add", "eps b", "c"), node("Sqrt", "c", "d"),
    node("Div", "one d", "e"), node("Mul", "e x", "f"), node("Mul", "f g", "y"),
]  # fmt: skip
SHUFFLE = [
    node("Conv", "x w b", "c"), node("Reshape", "c apart", "d"), node("Transpose", "d", "e", perm=[0, 2, 1, 3, 4]),
    node("Reshape", "e whole", "y"),
]  # fmt: skip
BIAS = [node("Conv", "x w", "c"), node("Add", "c b1", "d"), node("Relu", "d", "e"), node("Mul", "e b1", "y")]
IMAGES = {
    "w": array(6, 4, 1, 1), "b": array(6), "b1": array(6, 1, 1), "apart": np.array([2, 2, 3, 5, 4]),
    "whole": np.array([2, 6, 5, 4]),
}  # fmt: skip
ROWS = {
    "two": np.array(2, np.float32), "eps": np.array(1e-5, np.float32), "g": array(8), "last": np.array([-1]),
    "tiny": np.array(1e-7, np.float32), "one": np.array(1, np.float32),
}  # fmt: skip


@pytest.mark.parametrize(
    ("nodes", "name"),
    [
        (RMS_NORM, "RMS_NORM"), (RMS_DIVIDED, "RMS_NORM"), (UNIT_LENGTH, "L2_NORMALIZATION"),
        (UNIT_LENGTH_SPREAD, "L2_NORMALIZATION"),
    ],
)  # fmt: skip
def test_norms_of_rows(nodes: list[Any], name: str) -> None:
    assert list(names(compare(of_rows(nodes), {"x": array(2, 3, 8)}))) == [name]


def of_rows(nodes: list[Any], inputs: str = "x") -> bytes:
    used = {name for made in nodes for name in made.input} & set(ROWS)
    shapes = {name: [2, 3, 8] for name in inputs}
    return model(nodes, shapes, {"y": [2, 3, 8]}, **{name: ROWS[name] for name in used})


def of_images(nodes: list[Any]) -> bytes:
    used = {name for made in nodes for name in made.input} & set(IMAGES)
    return model(nodes, {"x": [2, 4, 5, 4]}, {"y": [2, 6, 5, 4]}, **{name: IMAGES[name] for name in used})


@pytest.mark.parametrize(("nodes", "left"), [(SHUFFLE, {"CONV_2D"}), (BIAS, {"CONV_2D", "MUL", "RESHAPE"})])
def test_convolutions_take_what_follows(nodes: list[Any], left: set[str]) -> None:
    module = compare(of_images(nodes), {"x": array(2, 4, 5, 4)})
    assert set(names(module)) == {"TRANSPOSE", *left}


@cache
def formulas() -> dict[str, bytes]:
    """Those above with a stranger beside x, and networks."""
    found = {str(seed): random_onnx.network(seed)[0].SerializeToString() for seed in range(6)}
    rows = {
        "rms": RMS_NORM,
        "rms divided": RMS_DIVIDED,
        "length": UNIT_LENGTH,
        "length spread": UNIT_LENGTH_SPREAD,
    }
    for name, nodes in rows.items():
        found[name] = of_rows([node("Mul", "o o", "s"), *nodes], "xo")
    found |= {"shuffle": of_images(SHUFFLE), "bias": of_images(BIAS)}
    for i, nodes in enumerate((GELU, GELU_HALF_FIRST, GELU_TANH, SWISH)):
        used = {name for made in nodes for name in made.input} & set(NUMBERS)
        numbers = {name: np.array(NUMBERS[name], np.float32) for name in used}
        found[f"function {i}"] = model(nodes, {"x": [2, 7], "o": [2, 7]}, {"y": [2, 7]}, **numbers)
    return found


NEARLY = {
    "0": (60, 781), "1": (156, 5456), "2": (14, 239), "3": (75, 1276), "4": (136, 4529), "5": (15, 213), "rms": (30, 138),
    "rms divided": (32, 153), "length": (22, 88), "length spread": (18, 74), "shuffle": (6, 33), "bias": (10, 48),
    "function 0": (21, 241), "function 1": (21, 230), "function 2": (38, 286), "function 3": (20, 60),
}  # fmt: skip
"""How many of the nearly same are taken, and of how many nodes they then are: a pattern that is seen in less has others."""


@pytest.mark.parametrize("name", formulas())
def test_what_is_nearly_a_pattern_computes_what_it_says(name: str) -> None:
    """Whatever attribute, operand or number is another: as onnxruntime computes it, which decides what fits together."""
    onnxruntime = pytest.importorskip("onnxruntime")
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level, options.intra_op_num_threads = 4, 1
    original = onnx.load_from_string(formulas()[name])
    shapes = {i.name: [d.dim_value for d in i.type.tensor_type.shape.dim] for i in original.graph.input}
    feeds = {name: array(*shape) for name, shape in shapes.items()}
    wrong, taken, nodes = {}, 0, 0
    for what, other in near(original):
        raw = other.SerializeToString()
        try:
            module = convert.load_onnx(raw)[0]
        except CircleTrainError:
            continue
        taken, nodes = taken + 1, nodes + len(module.main.nodes)
        try:
            expected = onnxruntime.InferenceSession(raw, options).run(None, feeds)
        except Exception:  # its own kinds
            continue
        found = evaluate(module.main.copy(), feeds)
        if differ(found, expected):
            wrong[what] = [(x.shape, y.shape) for x, y in zip(found, expected, strict=True)]
    assert not wrong
    assert (taken, nodes) == NEARLY[name]


def differ(found: list[Any], expected: list[Any]) -> bool:
    pairs = [
        (x, y, 1e-3 * np.abs(y.astype(np.float64)).max(initial=0.1, where=np.isfinite(y)))
        for x, y in zip(found, expected, strict=True)
    ]
    return any(
        x.shape != y.shape or not np.allclose(x, y, 1e-3, least, equal_nan=True) for x, y, least in pairs
    )


def test_flattening_an_image_shuffles_the_weights_not_the_image() -> None:
    nodes = [node("Conv", "x w", "a"), node("Flatten", "a", "b"), node("Gemm", "b v c", "y", transB=1)]
    raw = model(
        nodes, {"x": ["n", 2, 5, 4]}, {"y": ["n", 3]}, w=array(4, 2, 3, 3), v=array(3, 24), c=array(3)
    )
    module = compare(raw, {"x": array(2, 2, 5, 4)})
    assert names(module)["TRANSPOSE"] == 1
    _, provenance = convert.load_onnx(raw)
    weights = array(3, 24)
    there = provenance.to_circle("v", weights)
    assert not np.array_equal(there, weights)
    np.testing.assert_array_equal(provenance.to_onnx("v", there), weights)


@pytest.mark.parametrize(
    ("name", "more"),
    [("BatchNormalization", "m v"), ("InstanceNormalization", ""), ("LayerNormalization", "")],
)
def test_norms_divide_by_what_their_epsilon_makes_of_the_variance(name: str, more: str) -> None:
    vectors = {"g": array(3), "s": array(3), "m": array(3), "v": np.abs(array(3))}
    used = {one: vectors[one] for one in f"g s {more}".split()}
    shape = [2, 4, 5, 3] if name == "LayerNormalization" else [2, 3, 4, 5]
    raw = model([node(name, f"x g s {more}", "y", epsilon=0.5)], {"x": shape}, {"y": shape}, **used)
    compare(raw, {"x": array(*shape)})


def test_a_folded_norm_keeps_its_epsilon() -> None:
    vectors = {"g": array(3), "s": array(3), "m": array(3), "v": np.abs(array(3)), "w": array(3, 2, 1, 1)}
    nodes = [node("Conv", "x w", "c"), node("BatchNormalization", "c g s m v", "y", epsilon=0.5)]
    raw = model(nodes, {"x": [2, 2, 4, 5]}, {"y": [2, 3, 4, 5]}, **vectors)
    module = compare(raw, {"x": array(2, 2, 4, 5)}, fold_batchnorm=True)
    assert set(names(module)) == {"TRANSPOSE", "CONV_2D"}


@pytest.mark.parametrize(
    "before",
    [
        node("Sin", "x", "a"),
        node("Abs", "x", "a"),
        node("Transpose", "x", "a", perm=[1, 0]),
        node("Softmax", "x", "a"),
    ],
    ids=lambda made: made.op_type,
)
def test_only_operators_that_have_activations_take_one(before: Any) -> None:
    shape = [7, 2] if before.op_type == "Transpose" else [2, 7]
    module = compare(model([before, node("Relu", "a", "y")], {"x": [2, 7]}, {"y": shape}), {"x": array(2, 7)})
    assert names(module)["RELU"] == 1
