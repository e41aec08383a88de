"""Functions at the ends of float32's range: what onnxruntime answers, by both engines."""

from __future__ import annotations

import numpy as np
import pytest

import circle_train as ct
from circle_train.backends import native

ort = pytest.importorskip("onnxruntime")
helper = pytest.importorskip("onnx.helper")
LARGEST = np.finfo(np.float32).max
ENDS = np.array([np.inf, LARGEST, 1e30, 1e20, 1e10, 89.3, 88.8, 20, 3, 1, 0], np.float32)
X = np.concatenate([-ENDS, ENDS, [np.nan]]).astype(np.float32)[None]
FUNCTIONS = (
    "Erf Gelu HardSwish Sinh Cosh Tanh Asinh Acosh Atanh Sigmoid Softplus Elu Selu Celu Exp Log Sqrt "
    "Reciprocal Softsign HardSigmoid Mish Tan Asin Acos Atan"
).split()


def model_of(function: str) -> bytes:
    shapes = [helper.make_tensor_value_info(name, 1, X.shape) for name in "xy"]
    graph = helper.make_graph([helper.make_node(function, ["x"], ["y"])], "g", shapes[:1], shapes[1:])
    opsets = [helper.make_opsetid("", 20)]
    return bytes(helper.make_model(graph, opset_imports=opsets, ir_version=8).SerializeToString())


@pytest.mark.parametrize("function", FUNCTIONS)
@pytest.mark.parametrize("backend", ["reference", "native"])
def test_ends_of_the_range(function: str, backend: str) -> None:
    if backend == "native" and not native.is_available():
        pytest.skip("the native engine was not built")
    model = model_of(function)
    want = ort.InferenceSession(model, providers=["CPUExecutionProvider"]).run(None, {"x": X})[0]
    found = np.asarray(ct.InferenceSession(model, backend=backend)(X))
    np.testing.assert_allclose(found.reshape(X.shape), want, 3e-6, 1e-7)
