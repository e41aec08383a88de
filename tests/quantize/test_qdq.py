"""ONNX models in integers, as QuantizeLinear and DequantizeLinear."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import circle_train as ct

onnx = pytest.importorskip("onnx")
IMAGES = np.random.default_rng(0).normal(size=(16, 3, 12, 12)).astype(np.float32)
LABELS = np.arange(16) % 5
CONFIG = ct.TrainConfig(loss="sparse_categorical_crossentropy", batch_size=4, metrics=["accuracy"])


def network(opset: int = 17) -> Any:
    """Convolutions with a normalisation, a clip and a residual, grouped too; a pool, and a dense layer."""
    rng = np.random.default_rng(1)
    held: list[Any] = []

    def constant(name: str, *shape: int, low: float = -0.5, high: float = 0.5) -> str:
        held.append(onnx.numpy_helper.from_array(rng.uniform(low, high, shape).astype(np.float32), name))
        return name

    node = onnx.helper.make_node
    norm = [
        constant("g", 8, low=0.5, high=2),
        constant("be", 8),
        constant("m", 8),
        constant("v", 8, low=0.5, high=2),
    ]
    nodes = [
        node("Conv", ["x", constant("w1", 8, 3, 3, 3)], ["c1"], kernel_shape=[3, 3], pads=[1, 1, 1, 1]),
        node("BatchNormalization", ["c1", *norm], ["n1"]),
        node("Relu", ["n1"], ["r1"]),
        node(
            "Conv", ["r1", constant("w2", 8, 1, 3, 3), constant("b2", 8)], ["c2"], group=8, pads=[1, 1, 1, 1]
        ),
        node("Add", ["c2", "r1"], ["a"]),
        node("Relu", ["a"], ["r2"]),
        node("MaxPool", ["r2"], ["p"], kernel_shape=[2, 2], strides=[2, 2]),
        node("GlobalAveragePool", ["p"], ["gap"]),
        node("Flatten", ["gap"], ["f"]),
        node("Gemm", ["f", constant("w3", 5, 8), constant("b3", 5)], ["y"], transB=1),
    ]
    x = onnx.helper.make_tensor_value_info("x", 1, ["n", 3, 12, 12])
    y = onnx.helper.make_tensor_value_info("y", 1, ["n", 5])
    graph = onnx.helper.make_graph(nodes, "net", [x], [y], held)
    return onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", opset)], ir_version=8)


def shipped(tmp_path: Path, **settings: Any) -> tuple[ct.TrainSession, Path]:
    net = ct.TrainSession(network(), CONFIG)
    net.export(tmp_path / "x.onnx", quantize=ct.Int8(calibration=IMAGES, **settings))
    return net, tmp_path / "x.onnx"


def test_it_is_near_the_floats(tmp_path: Path) -> None:
    net, path = shipped(tmp_path)
    onnx.checker.check_model(str(path))
    found, expected = ct.InferenceSession(path)(IMAGES), net.predict(IMAGES)
    assert np.abs(found - expected).max() < 0.05 * np.abs(expected).max()


def test_onnxruntime_computes_it_in_integers(tmp_path: Path) -> None:
    runtime = pytest.importorskip("onnxruntime")
    net, path = shipped(tmp_path)
    options = runtime.SessionOptions()
    options.optimized_model_filepath = str(tmp_path / "optimized.onnx")
    options.log_severity_level = 4
    session = runtime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    (found,) = session.run(None, {"x": IMAGES})
    expected = net.predict(IMAGES)
    assert np.abs(found - expected).max() < 0.05 * np.abs(expected).max()
    kinds = {node.op_type for node in onnx.load(tmp_path / "optimized.onnx").graph.node}
    assert {"QLinearConv", "QGemm"} <= kinds
    assert not kinds & {"Conv", "Gemm"}


def test_normalisations_are_folded_and_inputs_stay_floats(tmp_path: Path) -> None:
    graph = onnx.load(shipped(tmp_path)[1]).graph
    assert "BatchNormalization" not in {node.op_type for node in graph.node}
    assert graph.input[0].type.tensor_type.elem_type == 1
    assert not {"w1", "w2", "w3"} & {tensor.name for tensor in graph.initializer}


def test_a_convolution_of_computed_weights_keeps_its_normalisation(tmp_path: Path) -> None:
    """There are no weights to fold it into."""
    model = network()
    model.graph.node[0].input[1] = "computed"
    model.graph.node.insert(0, onnx.helper.make_node("Abs", ["w1"], ["computed"]))
    net = ct.TrainSession(model, CONFIG)
    net.export(tmp_path / "x.onnx", quantize=ct.Int8(calibration=IMAGES))
    assert "BatchNormalization" in {node.op_type for node in onnx.load(tmp_path / "x.onnx").graph.node}
    found, expected = ct.InferenceSession(tmp_path / "x.onnx")(IMAGES), net.predict(IMAGES)
    assert np.abs(found - expected).max() < 0.05 * np.abs(expected).max()


def test_what_a_clip_alone_reads_is_rounded_behind_it(tmp_path: Path) -> None:
    """The convolution before the sum is rounded by itself, the sum only once it is clipped."""
    graph = onnx.load(shipped(tmp_path)[1]).graph
    rounded = {node.input[0] for node in graph.node if node.op_type == "QuantizeLinear"}
    assert {"x", "r1", "c2", "r2"} <= rounded and not {"c1", "n1", "a"} & rounded


def test_accuracy_is_reported(tmp_path: Path) -> None:
    net = ct.TrainSession(network(), CONFIG)
    made = net.export(tmp_path / "x.onnx", quantize=ct.Int8(calibration=IMAGES, validation=(IMAGES, LABELS)))
    assert made is not None
    assert made.judged is not None
    assert set(made.judged.after) == {"accuracy"}


def test_a_model_of_another_format_does_not_become_onnx(tmp_path: Path) -> None:
    net = ct.TrainSession("tests/data/mlp.circle", ct.TrainConfig(loss="mse"))
    with pytest.raises(ct.ConfigError, match=rf"^{tmp_path}/x.onnx: the model did not come from ONNX"):
        net.export(tmp_path / "x.onnx", quantize=ct.Int8(calibration=np.zeros((4, 6), np.float32)))


def test_what_cannot_be_is_refused(tmp_path: Path) -> None:
    net = ct.TrainSession(network(), CONFIG)
    with pytest.raises(ct.ConfigError, match=r"in the scheme int8 alone, not float16; export it as .tflite"):
        net.export(tmp_path / "x.onnx", quantize="float16")
    with pytest.raises(ct.DataError, match=r"needs calibration samples"):
        net.export(tmp_path / "x.onnx", quantize=ct.Int8())
    with pytest.raises(ct.ConversionError, match=r"is of opset 11, scales by channel need 13"):
        old = ct.TrainSession(network(11), CONFIG)
        old.export(tmp_path / "x.onnx", quantize=ct.Int8(calibration=IMAGES))
    assert not list(tmp_path.iterdir())


def test_it_is_trained_and_written_back_in_integers(tmp_path: Path) -> None:
    """The same graph, names and scales; what was trained is what onnxruntime computes."""
    runtime = pytest.importorskip("onnxruntime")
    shipped(tmp_path)
    net = ct.TrainSession(tmp_path / "x.onnx", CONFIG)
    assert {"w1:folded:stored", "w2:stored", "w3:stored", "y:bias:stored"} <= set(net.parameters)
    net.export(tmp_path / "same.onnx")
    losses = net.fit(IMAGES, LABELS, epochs=6, verbose=0).history["loss"]
    assert losses[-1] < losses[0]
    net.export(tmp_path / "trained.onnx")
    before, same, after = (onnx.load(tmp_path / f"{name}.onnx").graph for name in ("x", "same", "trained"))
    assert [n.op_type for n in after.node] == [n.op_type for n in before.node]
    changed = set()
    for one, alike, other in zip(before.initializer, same.initializer, after.initializer, strict=True):
        assert one.SerializeToString() == alike.SerializeToString()
        assert (one.name, one.data_type, one.dims) == (other.name, other.data_type, other.dims)
        if one.SerializeToString() != other.SerializeToString():
            changed.add(one.name)
    assert changed <= set(net.parameters) and "w3:stored" in changed
    session = runtime.InferenceSession(str(tmp_path / "trained.onnx"), providers=["CPUExecutionProvider"])
    (found,) = session.run(None, {"x": IMAGES})
    assert np.abs(found - net.predict(IMAGES)).max() < 0.05


def test_integers_that_stand_for_two_things_are_both() -> None:
    runtime = pytest.importorskip("onnxruntime")
    node, hold = onnx.helper.make_node, onnx.numpy_helper.from_array
    held = [
        hold(np.arange(-6, 6, dtype=np.int8).reshape(4, 3), "w"),
        hold(np.float32(0.5), "s1"),
        hold(np.array([0.1, 0.2, 0.3], np.float32), "s2"),
    ]
    nodes = [
        node("DequantizeLinear", ["w", "s1"], ["w1"]), node("DequantizeLinear", ["w", "s2"], ["w2"], axis=1),
        node("MatMul", ["x", "w1"], ["a"]), node("MatMul", ["x", "w2"], ["b"]), node("Add", ["a", "b"], ["y"]),
    ]  # fmt: skip
    infos = [onnx.helper.make_tensor_value_info(name, 1, ["n", n]) for name, n in (("x", 4), ("y", 3))]
    graph = onnx.helper.make_graph(nodes, "net", infos[:1], infos[1:], held)
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=8)
    x = np.random.default_rng(0).normal(size=(5, 4)).astype(np.float32)
    session = runtime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    np.testing.assert_allclose(ct.InferenceSession(model)(x), session.run(None, {"x": x})[0], rtol=1e-5)


def attention() -> Any:
    """Products of activations alone, moved before they meet weights; the second layer's weights are a copy of the first's."""
    rng = np.random.default_rng(3)
    node, from_array = onnx.helper.make_node, onnx.numpy_helper.from_array
    w = from_array(rng.uniform(-0.5, 0.5, (8, 8)).astype(np.float32), "w")
    shape = from_array(np.array([-1, 8], np.int64), "shape")
    nodes = [
        node("Identity", ["w"], ["again"]),
        node("MatMul", ["x", "w"], ["q"]),
        node("Transpose", ["x"], ["k"], perm=[0, 2, 1]),
        node("MatMul", ["q", "k"], ["scores"]),
        node("Softmax", ["scores"], ["shares"], axis=-1),
        node("MatMul", ["shares", "x"], ["v"]),
        node("Reshape", ["v", "shape"], ["rows"]),
        node("MatMul", ["rows", "again"], ["y"]),
    ]
    x = onnx.helper.make_tensor_value_info("x", 1, ["n", 4, 8])
    y = onnx.helper.make_tensor_value_info("y", 1, [None, 8])
    graph = onnx.helper.make_graph(nodes, "net", [x], [y], [w, shape])
    return onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=8)


def test_what_stays_float_is_named_and_copies_are_weights(tmp_path: Path) -> None:
    """Whose activation had no scale where a product of activations made it."""
    rows = np.random.default_rng(5).normal(size=(12, 4, 8)).astype(np.float32)
    net = ct.TrainSession(attention(), ct.TrainConfig(loss="mse", batch_size=1))
    with pytest.warns(
        UserWarning, match="3 operator\\(s\\) stay float: MatMul 'scores': its weights are no constants"
    ):
        made = net.export(tmp_path / "x.onnx", quantize=ct.Int8(calibration=rows))
    assert made is not None
    assert [text.split("'")[1] for text in made.floats] == ["scores", "shares", "v"]
    assert made.count == 2
    runtime = pytest.importorskip("onnxruntime")
    found = runtime.InferenceSession(tmp_path / "x.onnx", providers=["CPUExecutionProvider"]).run(
        None, {"x": rows}
    )[0]
    expected = runtime.InferenceSession(attention().SerializeToString(), providers=["CPUExecutionProvider"])
    wanted = expected.run(None, {"x": rows})[0]
    assert np.abs(found - wanted).max() < 0.05 * np.abs(wanted).max()
