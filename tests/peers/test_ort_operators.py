"""Every operator that ONNX Runtime trained, and those that it refused, through ONNX: gradients by finite differences."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import circle_train as ct

onnx = pytest.importorskip("onnx")
SHAPE = (2, 4, 6, 6)


def ints(*values: int) -> Any:
    return np.array(values, np.int64)


def floats(*shape: int, low: float = -0.5, high: float = 0.5) -> Any:
    return np.random.default_rng(shape).uniform(low, high, shape).astype(np.float32)


def case(
    *extra: Any, opset: int = 13, shape: tuple[int, ...] = SHAPE, outputs: int = 1, **attributes: Any
) -> Any:
    """Further inputs, the opset, the shape of the first input, how many outputs, attributes."""
    return extra, opset, shape, outputs, attributes


ROWS = (3, 5)
BETWEEN = np.float32(0.6 + 100.5 / 287)
"""Between two of the trained values, which stand on a grid so that a small step crosses no kink."""
TRAINED: dict[str, Any] = {
    "Cast": case(to=1), "Sin": case(), "Cos": case(), "Tanh": case(), "Erf": case(), "Relu": case(), "Exp": case(),
    "Neg": case(), "Abs": case(), "Sigmoid": case(), "LeakyRelu": case(alpha=0.1), "Identity": case(), "Log": case(),
    "Sqrt": case(), "Reciprocal": case(), "Gelu": case(opset=20), "Softmax": case(axis=1), "LogSoftmax": case(axis=-1),
    "Pow": case(np.float32(3)), "Clip": case(np.float32(-0.4), np.float32(1.2)), "Flatten": case(axis=1),
    "Add": case(floats(6)), "Sub": case(floats(1, 4, 1, 1)), "Mul": case(floats(6)), "Div": case(floats(6, low=0.5, high=1)),
    "Max": case(np.full(6, BETWEEN)), "Min": case(np.full(6, BETWEEN)),
    "MatMul": case(floats(6, 3)), "Gemm": case(floats(7, 5), floats(7), shape=ROWS, transB=1, alpha=0.5, beta=2.0),
    "Conv": case(floats(5, 4, 3, 3), floats(5), pads=[1, 1, 1, 1], strides=[2, 2]),
    "ConvTranspose": case(floats(4, 3, 3, 3), floats(3), strides=[2, 2]),
    "MaxPool": case(kernel_shape=[2, 2], strides=[2, 2]), "AveragePool": case(kernel_shape=[3, 3], strides=[2, 2]),
    "GlobalAveragePool": case(), "GlobalMaxPool": case(), "LpPool": case(kernel_shape=[2, 2], p=2, opset=18),
    "ReduceMean": case(axes=[1, 2]), "ReduceSum": case(ints(1)), "ReduceL2": case(axes=[3]), "ReduceL1": case(axes=[3]),
    "ReduceLogSumExp": case(axes=[1]), "ReduceMax": case(axes=[1]), "ReduceMin": case(axes=[2]),
    "ReduceProd": case(axes=[3]), "ReduceSumSquare": case(axes=[1]), "ReduceLogSum": case(axes=[1]),
    "Reshape": case(ints(2, 8, 18)), "Transpose": case(perm=[0, 2, 3, 1]), "Unsqueeze": case(ints(1)),
    "Squeeze": case(ints(1), shape=(3, 1, 5)), "Concat": case(floats(2, 1, 6, 6), axis=1),
    "Expand": case(ints(3, 2, 4, 6, 6)),
    "Slice": case(ints(1), ints(5), ints(2), ints(2)), "Gather": case(ints(0, 2, 2), axis=1),
    "Tile": case(ints(1, 2, 1, 1)),
    "GatherElements": case(np.zeros((2, 1, 6, 6), np.int64), axis=1),
    "GatherND": case(np.array([[0, 1], [1, 3]], np.int64)),
    "ScatterElements": case(np.zeros((1, 5), np.int64), floats(1, 5), shape=ROWS, axis=0),

    "ScatterND": case(np.array([[1]], np.int64), floats(1, 5), shape=ROWS), "Trilu": case(opset=14, shape=ROWS),
    "Pad": case(ints(0, 0, 1, 2, 0, 0, 2, 1)), "Split": case(axis=1, outputs=2, opset=11), "CumSum": case(ints(1)),
    "TopK": case(ints(2), axis=1, outputs=2), "LayerNormalization": case(floats(6), floats(6), opset=17),
    "InstanceNormalization": case(floats(4), floats(4)),
    "BatchNormalization": case(floats(4), floats(4), floats(4), floats(4, low=0.5, high=1)),
    "GroupNormalization": case(floats(4), floats(4), num_groups=2, opset=21),
    "Elu": case(), "Selu": case(), "Celu": case(), "HardSwish": case(opset=14), "HardSigmoid": case(), "Softplus": case(),
    "Softsign": case(), "Mish": case(opset=18), "PRelu": case(floats(4, 1, 1)), "ThresholdedRelu": case(alpha=float(BETWEEN)),
    "Tan": case(), "Sinh": case(), "Cosh": case(), "Atan": case(), "Asinh": case(), "Atanh": case(),
    "Acos": case(), "Asin": case(),
    "Sum": case(floats(6), floats(6)), "Mean": case(floats(6)),
    "DepthToSpace": case(blocksize=2), "SpaceToDepth": case(blocksize=2),
    "Einsum": case(floats(6, 3), equation="nchw,wk->nchk"), "LRN": case(size=3), "LpNormalization": case(axis=1),
    "Dropout": case(), "Resize": case(np.array([], np.float32), np.array([1, 1, 2, 2], np.float32), mode="nearest"),
}  # fmt: skip
WITHIN_ONE = {"Atanh", "Acos", "Asin", "Tan"}


def model_of(op: str, folder: Path) -> Path:
    """y = mean over what the operator makes of x·w, a sample each; w is trained."""
    from onnx import TensorProto, helper, numpy_helper

    extra, opset, shape, outputs, attributes = TRAINED[op]
    low, high = (0.1, 0.8) if op in WITHIN_ONE else (0.6, 1.6)
    grid = np.random.default_rng(7).permutation(np.linspace(low, high, int(np.prod(shape))))
    weights = [numpy_helper.from_array(grid.reshape(shape).astype(np.float32), "w")]
    names = [f"e{i}" if value.size or value.ndim != 1 else "" for i, value in enumerate(extra)]
    weights += [
        numpy_helper.from_array(value, name) for value, name in zip(extra, names, strict=True) if name
    ]
    results = [f"o{i}" for i in range(outputs)]
    nodes = [
        helper.make_node("Mul", ["w", "x"], ["p"]),
        helper.make_node(op, ["p", *names], results, **attributes),
    ]
    nodes.append(helper.make_node("Mul", ["o0", "x"], ["y"]))
    info = helper.make_tensor_value_info("x", TensorProto.FLOAT, [1])
    graph = helper.make_graph(
        nodes, op, [info], [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)], weights
    )
    path = folder / f"{op}.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=10), path)
    return path


@pytest.mark.parametrize("op", TRAINED)
def test_gradient_is_that_of_the_function(op: str, tmp_path: Path) -> None:
    x = np.ones(1, np.float32)
    config = ct.TrainConfig(loss="mse", optimizer=ct.optimizers.SGD(1e-3), batch_size=1, trainable=["w"])
    session = ct.TrainSession(model_of(op, tmp_path), config)
    (output,) = session.eval_step(x).outputs
    y = np.random.default_rng(8).uniform(-1, 1, output.shape).astype(np.float32)
    session.train_step(x, y, update=False, accumulate=True)
    gradient, weight = session.gradients["w"].astype(np.float64), session.parameters["w"].copy()
    direction = np.random.default_rng(9).choice(np.float32([-1, 1]), weight.shape)
    losses = []
    for sign in (1, -1):
        session.parameters["w"] = weight + sign * np.float32(5e-4) * direction
        losses.append(float(session.eval_step(x, y).loss))
    expected = (losses[0] - losses[1]) / 1e-3
    assert np.abs(gradient).max() > 0
    assert float((gradient * direction).sum()) == pytest.approx(expected, rel=2e-2, abs=2e-3)
