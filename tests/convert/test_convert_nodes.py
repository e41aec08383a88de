"""onnx's backend cases: a match or a refusal, never a wrong number nor another exception."""

from __future__ import annotations

import re
from collections.abc import Iterable

import numpy as np
import pytest

pytest.importorskip("onnx")

from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator
from onnx_cases import Case, node_cases, outcome, stored_cases, with_constants, with_one_computed

import circle_train as ct

REFUSED = re.compile(
    "test_(image_decoder|melweightmatrix|not_.d:"  # pictures in files; sizes that are data; opset 1
    "|affine_grid_2d.*expanded|reduce_(log_sum|l2).*expanded|reduce_log_sum_(de|a)sc_axes"  # axes or sizes that are data
    "|resize_downsample_(scales_(linear|cubic)_align_corners|sizes_nearest_not_smaller))"  # a fraction of an element
)
"""What Circle cannot say, by name: whatever else is refused was understood before."""


def unlike(cases: Iterable[Case]) -> tuple[int, list[str]]:
    """How many there are, and which are not as the standard says, with the reason."""
    found = [(case.name, outcome(case)) for case in cases]
    wrong = [f"{name}: {said.verdict}, {said.reason}" for name, said in found if said.verdict != "match"]
    return len(found), [line for line in wrong if ": refused" not in line or not REFUSED.match(line)]


def test_node_cases() -> None:
    count, wrong = unlike(node_cases())
    assert not wrong
    assert count > 1000


def test_node_cases_with_constants() -> None:
    count, wrong = unlike(with_constants(node_cases()))
    assert not wrong
    assert count > 600


def test_node_cases_with_all_constants_but_one() -> None:
    count, wrong = unlike(with_one_computed(with_constants(node_cases())))
    assert not wrong
    assert count > 300


@pytest.mark.parametrize("kind", ["pytorch-converted", "pytorch-operator", "simple"])
def test_stored_cases(kind: str) -> None:
    count, wrong = unlike(stored_cases(kind))
    assert not wrong
    assert count


SELDOM: list[tuple[str, int, list[tuple[int, ...]], dict[str, object]]] = [
    ("Softmax", 11, [(2, 3, 4)], {"axis": 1}),
    ("LogSoftmax", 11, [(2, 3, 4, 2)], {"axis": 2}),
    ("Hardmax", 11, [(2, 3, 4)], {"axis": 1}),
    ("BatchNormalization", 15, [(5, 3), (3,), (3,), (3,), (3,)], {"training_mode": 1, "momentum": 0.7}),
    ("BatchNormalization", 15, [(2, 3, 4, 5), (3,), (3,), (3,), (3,)], {"training_mode": 1, "epsilon": 0.1}),
    ("MaxPool", 12, [(1, 2, 5, 6)], {"kernel_shape": [2, 3], "auto_pad": "VALID"}),
    ("Split", 11, [(2, 4)], {"axis": 1}),
]
"""Forms that onnx's cases leave out: of old opsets, which its reference does not know, and of training, which onnxruntime
does not."""


@pytest.mark.parametrize(("kind", "opset", "shapes", "attributes"), SELDOM)
def test_seldom_forms_are_as_the_standard_computes_them(
    kind: str, opset: int, shapes: list[tuple[int, ...]], attributes: dict[str, object]
) -> None:
    rng = np.random.default_rng(0)
    values = {f"x{i}": rng.uniform(0.5, 2, shape).astype(np.float32) for i, shape in enumerate(shapes)}
    made = ["y", "mean", "var"] if kind == "BatchNormalization" else ["y"]
    node = helper.make_node(kind, list(values), made, **attributes)
    infos = [helper.make_tensor_value_info("x0", TensorProto.FLOAT, shapes[0])]
    others = [numpy_helper.from_array(value, name) for name, value in values.items() if name != "x0"]
    graph = helper.make_graph(
        [node], "g", infos, [helper.make_empty_tensor_value_info(n) for n in made], others
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)
    if "training_mode" in attributes:
        expected = ReferenceEvaluator(model).run(None, {"x0": values["x0"]})
    else:
        session = pytest.importorskip("onnxruntime").InferenceSession(model.SerializeToString())
        expected = session.run(None, {"x0": values["x0"]})
    found = ct.InferenceSession(model.SerializeToString()).run(None, {"x0": values["x0"]})
    for ours, theirs in zip(found, expected, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("is_open", [False, True])
@pytest.mark.parametrize("seed", range(60))
def test_windows_that_lie_unevenly(seed: int, is_open: bool) -> None:
    """Pools, convolutions and their inverses with paddings, strides and dilations of all kinds, as onnxruntime has them."""
    onnxruntime = pytest.importorskip("onnxruntime")
    rng = np.random.default_rng(seed)
    kind = ("AveragePool", "MaxPool", "Conv", "ConvTranspose", "LpPool")[seed % 5]
    rank = int(rng.integers(1, 3))
    kernel, strides, dilations = (rng.integers(1, most, rank).tolist() for most in (4, 4, 3))
    pads = [int(rng.integers(0, kernel[i % rank])) for i in range(2 * rank)]
    attributes = {"kernel_shape": kernel, "strides": strides, "pads": pads, "dilations": dilations}
    if kind.endswith("Pool"):
        attributes["ceil_mode"] = int(rng.integers(2))
    if kind == "AveragePool":
        attributes["count_include_pad"] = int(rng.integers(2))
    x = rng.normal(size=(2, 3, *(7, 8)[:rank])).astype(np.float32)
    w = rng.normal(size=(3, 3, *kernel)).astype(np.float32)
    given = [] if kind.endswith("Pool") else [numpy_helper.from_array(w, "w")]
    node = helper.make_node(kind, ["x", *(t.name for t in given)], ["y"], **attributes)
    shape = ["n", 3, *"hw"[:rank]] if is_open else x.shape
    infos = (
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        [helper.make_empty_tensor_value_info("y")],
    )
    graph = helper.make_graph([node], "g", *infos, given)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)
    raw = model.SerializeToString()
    try:
        expected = onnxruntime.InferenceSession(raw).run(None, {"x": x})
    except Exception:  # its own kinds: not with these dilations
        pytest.skip("onnxruntime does not take these together")
    np.testing.assert_allclose(
        ct.InferenceSession(raw)(x), expected[0], rtol=1e-3, atol=1e-4, err_msg=str(attributes)
    )
