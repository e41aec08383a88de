"""What a plan foresees is what a process takes: models like the benchmark's, each trained in a process of its own."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from networks import finish, make, mlp, new_input, weight

from circle_train.backends import native
from circle_train.ir import Graph, Tensor
from circle_train.ir.graph import constant
from circle_train.model import Model
from circle_train.ops.attributes import Activation, Padding

SCRIPT = Path(__file__).resolve().parents[2] / "tools" / "dev" / "memory.py"
SLACK = 300_000
"""Bytes: by so much two measurings of one small model differ, by the pages that a process had touched before."""
SAME = {"padding": Padding.SAME, "stride_h": 1, "stride_w": 1}


@pytest.fixture
def memory(monkeypatch: pytest.MonkeyPatch) -> Any:
    spec = importlib.util.spec_from_file_location("memory_tool", SCRIPT)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "memory_tool", module)
    spec.loader.exec_module(module)
    return module


def dense(graph: Graph, x: Tensor, inputs: int, outputs: int, name: str, relu: bool = False) -> Tensor:
    op = make("FULLY_CONNECTED", fused_activation_function=Activation.RELU if relu else Activation.NONE)
    return graph.emit(op, x, weight(f"{name}/w", outputs, inputs), weight(f"{name}/b", outputs), name=name)


def perceptron(folder: Path) -> Path:
    """784-128-10."""
    mlp(784, 128, 10, softmax=False).save(folder / "net.tflite")
    return folder / "net.tflite"


def small_cnn(folder: Path) -> Path:
    """Two 3×3 convolutions with pools, two dense layers."""
    graph = Graph("small", [new_input("image", 1, 28, 28, 1)])
    conv = make("CONV_2D", fused_activation_function=Activation.RELU, **SAME)
    pool = make("MAX_POOL_2D", padding=Padding.SAME, stride_h=2, stride_w=2, filter_height=2, filter_width=2)
    x, channels = graph.inputs[0], 1
    for i, width in enumerate((32, 64)):
        x = graph.emit(conv, x, weight(f"c{i}/w", width, 3, 3, channels), weight(f"c{i}/b", width))
        x, channels = graph.emit(pool, x), width
    x = graph.emit(make("RESHAPE", new_shape=(-1, 3136)), x)
    x = dense(graph, x, 3136, 128, "hidden", relu=True)
    finish(graph, dense(graph, x, 128, 10, "classes")).save(folder / "net.tflite")
    return folder / "net.tflite"


def mobile(size: int, blocks: int, classes: int) -> Model:
    """Inverted residuals: 1×1, depthwise and 1×1 convolutions, with additions."""
    graph = Graph("mobile", [new_input("image", 1, size, size, 3)])
    relu6 = {"fused_activation_function": Activation.RELU6, **SAME}
    first = make("CONV_2D", **{**relu6, "stride_h": 2, "stride_w": 2})
    x = graph.emit(first, graph.inputs[0], weight("first/w", 24, 3, 3, 3), weight("first/b", 24))
    for i in range(blocks):
        before = x
        x = graph.emit(make("CONV_2D", **relu6), x, weight(f"{i}/up", 144, 1, 1, 24), weight(f"{i}/ub", 144))
        depthwise = make("DEPTHWISE_CONV_2D", depth_multiplier=1, **relu6)
        x = graph.emit(depthwise, x, weight(f"{i}/dw", 1, 3, 3, 144), weight(f"{i}/db", 144))
        x = graph.emit(make("CONV_2D", **SAME), x, weight(f"{i}/down", 24, 1, 1, 144), weight(f"{i}/pb", 24))
        x = graph.emit(make("ADD"), before, x)
    x = graph.emit(make("MEAN", keep_dims=False), x, constant(np.array([1, 2], np.int32), "axes"))
    return finish(graph, dense(graph, x, 24, classes, "classes"))


def mobile_net(folder: Path) -> Path:
    mobile(112, 6, 1000).save(folder / "net.tflite")
    return folder / "net.tflite"


def mobile_tail(folder: Path) -> Path:
    mobile(96, 8, 1).save(folder / "net.tflite")
    return folder / "net.tflite"


def encoder(folder: Path) -> Path:
    """From ONNX: an embedding of many words, attention and feed-forward layers as an exporter writes them."""
    onnx = pytest.importorskip("onnx")
    from onnx import TensorProto, helper, numpy_helper

    random, nodes, weights = np.random.default_rng(0), [], []
    words, width, heads, length = 20000, 128, 4, 64

    def have(name: str, value: Any) -> str:
        weights.append(numpy_helper.from_array(np.asarray(value), name))
        return name

    def matrix(name: str, *shape: int) -> str:
        return have(name, (random.standard_normal(shape) / np.sqrt(shape[0])).astype(np.float32))

    def node(op: str, *inputs: str, **attributes: Any) -> str:
        name = f"{op}{len(nodes)}"
        nodes.append(helper.make_node(op, inputs, [name], name=name, **attributes))
        return name

    def linear(x: str, name: str, inputs: int, outputs: int) -> str:
        product = node("MatMul", x, matrix(f"{name}.w", inputs, outputs))
        return node("Add", product, have(f"{name}.b", np.zeros(outputs, np.float32)))

    def norm(x: str, name: str) -> str:
        scale = have(f"{name}.g", np.ones(width, np.float32))
        return node("LayerNormalization", x, scale, have(f"{name}.b", np.zeros(width, np.float32)), axis=-1)

    split = have("split", np.array([0, length, heads, width // heads]))
    whole = have("whole", np.array([0, length, width]))
    root = have("root", np.float32(np.sqrt(width // heads)))
    x = node("Gather", matrix("words", words, width), "tokens")
    for i in range(4):
        q, k, v = (node("Reshape", linear(x, f"{i}.{part}", width, width), split) for part in "qkv")
        q, v = (node("Transpose", part, perm=[0, 2, 1, 3]) for part in (q, v))
        scores = node("Div", node("MatMul", q, node("Transpose", k, perm=[0, 2, 3, 1])), root)
        mixed = node("MatMul", node("Softmax", scores, axis=-1), v)
        mixed = node("Reshape", node("Transpose", mixed, perm=[0, 2, 1, 3]), whole)
        x = norm(node("Add", x, linear(mixed, f"{i}.out", width, width)), f"{i}.n1")
        inner = node("Gelu", linear(x, f"{i}.up", width, 4 * width))
        x = norm(node("Add", x, linear(inner, f"{i}.down", 4 * width, width)), f"{i}.n2")
    x = linear(node("ReduceMean", x, have("axis", np.array([1])), keepdims=0), "classes", width, 2)
    nodes[-1].output[0] = "y"
    tokens = helper.make_tensor_value_info("tokens", TensorProto.INT64, ["n", length])
    scores = helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", 2])
    graph = helper.make_graph(nodes, "encoder", [tokens], [scores], weights)
    onnx.save(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9),
        folder / "net.onnx",
    )
    return folder / "net.onnx"


LOGITS = {"loss": "categorical_crossentropy"}


@pytest.mark.slow
@pytest.mark.skipif(
    not Path("/proc/self/clear_refs").exists() or not native.is_available(),
    reason="needs Linux's peak memory and the native engine",
)
@pytest.mark.parametrize(
    ("build", "settings"),
    [
        pytest.param(perceptron, {"batch_size": 10}, id="w1b10"),
        pytest.param(perceptron, {"batch_size": 32}, id="w1b32"),
        pytest.param(small_cnn, {"batch_size": 32, **LOGITS}, id="w2"),
        pytest.param(mobile_net, {"batch_size": 10, **LOGITS}, id="w3"),
        pytest.param(mobile_tail, {"batch_size": 32, "trainable": ("last", 5)}, id="w3t"),
        pytest.param(encoder, {"batch_size": 8, "optimizer": "adamw", **LOGITS}, id="w5"),
    ],
)
def test_planned_is_measured(
    build: Callable[[Path], Path], settings: dict[str, Any], tmp_path: Path, memory: Any
) -> None:
    """Within 3 %, and small ones within what measuring them differs by."""
    case = memory.Case(build(tmp_path), {"loss": "mse", "optimizer": "adam", **settings})
    found = memory.measure(case, steps=12)
    assert found.planned == pytest.approx(found.measured, rel=0.03, abs=SLACK), (
        f"{found.planned / 1e6:.2f} MB planned, {found.measured / 1e6:.2f} taken"
    )
