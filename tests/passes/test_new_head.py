"""A new classifier: found behind whatever follows it, in floats and integers; the rest as it was."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from picture_net import picture_net
from test_float_head import integer_model

import circle_train as ct

SHARED = Path(__file__).parents[3] / "shared" / "data"


def test_the_classifier_is_replaced_and_the_body_stays() -> None:
    model = picture_net()
    headed = model.with_head(["a", "b", "c"])
    assert [op.name for op in headed.operators] == [op.name for op in model.operators]
    assert headed.outputs[0].shape == (-1, 3)
    assert headed.labels == ("a", "b", "c")
    before = ct.TrainSession(model, ct.TrainConfig(loss="mse")).parameters
    after = ct.TrainSession(headed, ct.TrainConfig(loss="mse")).parameters
    assert set(after) - set(before) == {"head/weights", "head/bias"}
    for name in set(before) & set(after):
        np.testing.assert_array_equal(before[name], after[name])


def test_it_starts_without_an_opinion() -> None:
    x = np.random.default_rng(0).normal(size=(2, 32, 32, 3)).astype(np.float32)
    np.testing.assert_allclose(ct.InferenceSession(picture_net().with_head(4))(x), 0.25)


def test_scores_say_what_follows() -> None:
    for scores, last in (("softmax", "SOFTMAX"), ("sigmoid", "LOGISTIC"), ("values", "FULLY_CONNECTED")):
        assert picture_net().with_head(2, scores=scores).operators[-1].name == last


def test_an_integer_body_stays_in_integers() -> None:
    model = integer_model()
    headed = model.with_head(2)
    assert [op.name for op in headed.operators] == [
        "FULLY_CONNECTED",
        "DEQUANTIZE",
        "FULLY_CONNECTED",
        "SOFTMAX",
    ]
    rng = np.random.default_rng(0)
    x = rng.integers(-128, 128, (16, 6)).astype(np.int8)
    y = np.eye(2, dtype=np.float32)[(x[:, 0] > 0).astype(int)]
    config = ct.TrainConfig(
        loss="categorical_crossentropy", optimizer=ct.optimizers.Adam(learning_rate=0.05), batch_size=16
    )
    losses = ct.TrainSession(headed, config).fit(x, y, epochs=20, verbose=0).history["loss"]
    assert losses[-1] < 0.5 * losses[0]


def test_a_head_on_maps_averages_their_places() -> None:
    features = picture_net().module.main
    from circle_train.runtime.module import with_outputs

    name = next(node.outputs[0].name for node in features.nodes if node.op.name == "RELU")
    body = ct.Model(with_outputs(picture_net().module, [name]))
    headed = body.with_head(3)
    assert [op.name for op in headed.operators][-3:] == ["MEAN", "FULLY_CONNECTED", "SOFTMAX"]


@pytest.mark.parametrize("classes", [0, -1, True, [], [1, 2], 2.5])
def test_what_is_no_number_of_classes_is_refused(classes: object) -> None:
    with pytest.raises((ct.ConfigError, TypeError)):
        picture_net().with_head(classes)  # type: ignore[arg-type]


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    [
        "models/mobilenet_v1_1.0_224_f32.tflite",
        "models/mlperf_tiny_resnet8_int8.tflite",
        "int8/vision_image_labeling_u8.tflite",
    ],
)
def test_real_models_run_elsewhere_with_their_new_head(name: str, tmp_path: Path) -> None:
    interpreter = pytest.importorskip("ai_edge_litert.interpreter")
    if not SHARED.exists():
        pytest.skip("../shared is not there")
    model = ct.load(SHARED / name).with_head(["a", "b"])
    model.save(tmp_path / "headed.tflite")
    runtime = interpreter.Interpreter(str(tmp_path / "headed.tflite"))
    runtime.allocate_tensors()
    given = runtime.get_input_details()[0]
    runtime.set_tensor(given["index"], np.zeros(given["shape"], given["dtype"]))
    runtime.invoke()
    np.testing.assert_allclose(runtime.get_tensor(runtime.get_output_details()[0]["index"]), [[0.5, 0.5]])


def onnx_net(layer: str) -> bytes:
    """A convolution, a mean over places, and a classifier of five classes as this layer."""
    onnx = pytest.importorskip("onnx")
    helper, arrays = onnx.helper, onnx.numpy_helper
    rng = np.random.default_rng(0)
    held = {"w": rng.normal(size=(8, 3, 3, 3)), "b": rng.normal(size=8), "c": rng.normal(size=5)}
    nodes = [helper.make_node("Conv", ["x", "w", "b"], ["h"]), helper.make_node("Relu", ["h"], ["r"])]
    if layer == "Conv":
        held["v"] = rng.normal(size=(5, 8, 1, 1))
        nodes += [
            helper.make_node("Conv", ["r", "v", "c"], ["s"]),
            helper.make_node("GlobalAveragePool", ["s"], ["p"]),
        ]
        nodes.append(helper.make_node("Flatten", ["p"], ["z"]))
    else:
        held["v"] = rng.normal(size=(8, 5))
        nodes += [
            helper.make_node("GlobalAveragePool", ["r"], ["p"]),
            helper.make_node("Flatten", ["p"], ["f"]),
        ]
        if layer == "Gemm":
            nodes.append(helper.make_node("Gemm", ["f", "v", "c"], ["z"]))
        else:
            nodes += [
                helper.make_node("MatMul", ["f", "v"], ["m"]),
                helper.make_node("Add", ["m", "c"], ["z"]),
            ]
    nodes.append(helper.make_node("Softmax", ["z"], ["y"], axis=1))
    graph = helper.make_graph(
        nodes,
        "net",
        [helper.make_tensor_value_info("x", 1, ["n", 3, 12, 12])],
        [helper.make_tensor_value_info("y", 1, ["n", 5])],
        [arrays.from_array(value.astype(np.float32), name) for name, value in held.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)])
    model.ir_version = 8
    return bytes(model.SerializeToString())


@pytest.mark.parametrize("layer", ["Gemm", "MatMul", "Conv"])
@pytest.mark.parametrize("scores", ["softmax", "sigmoid", "values"])
def test_a_new_head_goes_back_into_onnx(layer: str, scores: str, tmp_path: Path) -> None:
    runtime = pytest.importorskip("onnxruntime")
    headed = ct.load(onnx_net(layer)).with_head(["a", "b", "c"], scores=scores)
    config = ct.TrainConfig(loss="mse", optimizer=ct.optimizers.SGD(learning_rate=0.1), batch_size=4)
    session = ct.TrainSession(headed, config)
    rng = np.random.default_rng(1)
    x, y = rng.normal(size=(4, 3, 12, 12)).astype(np.float32), rng.normal(size=(4, 3)).astype(np.float32)
    session.train_step(x, y)
    session.export(tmp_path / "net.onnx")
    (found,) = runtime.InferenceSession(tmp_path / "net.onnx").run(None, {"x": x})
    np.testing.assert_allclose(found, session.predict(x), atol=1e-5)
    assert np.ptp(found) > 0
    assert ct.load(tmp_path / "net.onnx").labels == ("a", "b", "c")
