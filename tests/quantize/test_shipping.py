"""Models of floats, shipped in integers: what the files hold, how near they are, and what is refused."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from bfloat16_nets import IMAGES, LABELS, inverted_residual
from networks import finish, make, new_input, weight

import circle_train as ct
from circle_train.ir import DType, Graph, Tensor
from circle_train.ir.graph import constant
from circle_train.ir.tensor_type import Array
from circle_train.model import Model
from circle_train.ops.attributes import Activation, Padding

CONFIG = ct.TrainConfig(loss="categorical_crossentropy", batch_size=4, metrics=["categorical_accuracy"])


def session(model: Model | None = None) -> ct.TrainSession:
    return ct.TrainSession(model or inverted_residual(), CONFIG)


def real(value: Array, tensor: Tensor) -> Array:
    assert tensor.quantization is not None
    made: Array = (value.astype(np.float64) - tensor.quantization.zero_point[0]) * tensor.quantization.scale[
        0
    ]
    return made


def one_layer(w: Array, b: Array | None = None, **options: Any) -> Model:
    graph = Graph("net", [new_input("x", 1, w.shape[1])])
    bias = constant(np.zeros(len(w), np.float32) if b is None else b.astype(np.float32), "b")
    y = graph.emit(
        make("FULLY_CONNECTED", **options),
        graph.inputs[0],
        constant(w.astype(np.float32), "w"),
        bias,
        name="y",
    )
    return finish(graph, y)


def test_sizes_that_became_constants_are_no_longer_open(tmp_path: Path) -> None:
    """A batch that the file would not compute is not promised."""
    graph = Graph("net", [new_input("x", 1, 2, 3)])
    graph.inputs[0].shape_signature = (-1, 2, 3)
    size = graph.emit(make("SHAPE"), graph.inputs[0], name="size")
    first = graph.emit(
        make("STRIDED_SLICE", shrink_axis_mask=1),
        size,
        *(constant(np.array([i], np.int32), f"i{i}") for i in (0, 1)),
        constant(np.array([1], np.int32), "by"),
        name="first",
    )
    six = constant(np.array(6, np.int32), "six")
    flat = graph.emit(
        make("RESHAPE"),
        graph.inputs[0],
        graph.emit(make("PACK", values_count=2), first, six, name="to"),
        name="flat",
    )
    y = graph.emit(make("FULLY_CONNECTED"), flat, weight("w", 3, 6), weight("b", 3), name="y")
    net = ct.TrainSession(finish(graph, y), ct.TrainConfig(loss="mse"))
    x = np.random.default_rng(0).normal(size=(16, 2, 3)).astype(np.float32)
    net.export(tmp_path / "x.tflite", quantize=ct.Int8(calibration=x, io="float32"))
    assert ct.load(tmp_path / "x.tflite").inputs[0].shape == (1, 2, 3)
    again = ct.TrainSession(tmp_path / "x.tflite", ct.TrainConfig(loss="mse", batch_size=4)).predict(x)
    assert np.abs(again - net.predict(x)).max() < 0.05 * np.abs(again).max()


@pytest.mark.parametrize("scheme", ["int8", "int16x8"])
def test_squares_and_quotients_are_products(scheme: str, tmp_path: Path) -> None:
    """Of which LiteRT has integers: a norm of a transformer's layer needs no way back to floats."""
    graph = Graph("net", [new_input("x", 4, 6)])
    square = graph.emit(make("SQUARE"), graph.inputs[0], name="square")
    made = graph.emit(
        make("DIV"), square, constant(np.array([2.0, 4.0, 5.0, 3.0, 0.5, 1.0], np.float32), "by"), name="y"
    )
    net = ct.TrainSession(finish(graph, made), ct.TrainConfig(loss="mse"))
    x = np.random.default_rng(0).normal(size=(64, 6)).astype(np.float32)
    shipped = net.export(tmp_path / "x.tflite", quantize=ct.Int8(calibration=x, io="float32", scheme=scheme))
    assert shipped is not None
    assert shipped.floats == ()
    found, expected = ct.InferenceSession(tmp_path / "x.tflite")(x), net.predict(x)
    assert np.abs(found - expected).max() < 0.03 * np.abs(expected).max()


@pytest.mark.parametrize("scheme", ["int8", "int16x8", "dynamic", "float16"])
def test_the_file_is_near_the_floats_and_smaller(scheme: str, tmp_path: Path) -> None:
    net = session()
    net.export(tmp_path / "float.tflite")
    shipped = net.export(
        tmp_path / "x.tflite", quantize=ct.Int8(calibration=IMAGES, io="float32", scheme=scheme)
    )
    assert shipped is not None
    assert shipped.count >= (1 if scheme in ("dynamic",) else 7)
    assert shipped.nbytes < (tmp_path / "float.tflite").stat().st_size
    found, expected = ct.InferenceSession(tmp_path / "x.tflite")(IMAGES), net.predict(IMAGES)
    assert np.abs(found - expected).max() < 0.1 * np.abs(expected).max()


@pytest.mark.parametrize("scheme", ["int8", "int16x8", "dynamic", "float16"])
def test_litert_runs_it_as_we_do(scheme: str, tmp_path: Path) -> None:
    runtime = pytest.importorskip("ai_edge_litert.interpreter")
    path = str(tmp_path / "x.tflite")
    session().export(path, quantize=ct.Int8(calibration=IMAGES, io="float32", scheme=scheme))
    interpreter = runtime.Interpreter(path, num_threads=1)
    runner = interpreter.get_signature_runner("serving_default")
    theirs = np.concatenate([runner(image=IMAGES[i : i + 1])["fc"] for i in range(len(IMAGES))])
    ours = ct.InferenceSession(path)(IMAGES)
    allowed = {"float16": 1e-5, "dynamic": 0.03}.get(scheme, 0.02)  # a step or two of the last layer's scale
    assert np.abs(ours - theirs).max() <= allowed * np.abs(ours).max()


def test_int8_goes_in_and_comes_out(tmp_path: Path) -> None:
    net = session()
    net.export(tmp_path / "x.tflite", quantize=ct.Int8(calibration=IMAGES))
    model = ct.load(tmp_path / "x.tflite")
    (x,), (y,) = model.module.main.inputs, model.module.main.outputs
    assert (x.name, x.dtype, y.name, y.dtype) == ("image", DType.INT8, "fc", DType.INT8)
    assert not any(tensor.dtype.is_float for tensor in model.module.main.all_tensors())
    (signature,) = model.module.carried["signatures"]
    assert [(n, t) for n, t in signature.inputs] == [("image", x)]
    assert x.quantization is not None
    stored = np.clip(np.rint(IMAGES / x.quantization.scale[0]) + x.quantization.zero_point[0], -128, 127)
    found = real(ct.InferenceSession(model)(stored.astype(np.int8)), y)
    expected = net.predict(IMAGES)
    assert np.abs(found - expected).max() < 0.1 * np.abs(expected).max()


def test_description_and_names_stay(tmp_path: Path) -> None:
    model = inverted_residual().with_head(["a", "b", "c"])
    net = ct.TrainSession(model, CONFIG)
    net.export(tmp_path / "x.tflite", quantize=ct.Int8(calibration=IMAGES))
    assert ct.load(tmp_path / "x.tflite").labels == ("a", "b", "c")


def test_what_stays_float_is_named(tmp_path: Path) -> None:
    graph = Graph("net", [new_input("x", 1, 4)])
    y = graph.emit(make("FULLY_CONNECTED"), graph.inputs[0], weight("w", 4, 4), weight("b", 4), name="y")
    z = graph.emit(make("FLOOR"), graph.emit(make("COS"), y, name="cosine"), name="z")
    x = np.random.default_rng(0).normal(size=(8, 4)).astype(np.float32)
    with pytest.warns(UserWarning, match="2 operator.s. stay float: COS 'cosine'.* in float alone"):
        shipped = session(finish(graph, z)).export(tmp_path / "x.tflite", quantize=ct.Int8(calibration=x))
    assert shipped is not None
    assert len(shipped.floats) == 2
    assert "stays float: COS 'cosine'" in str(shipped)
    assert ct.InferenceSession(tmp_path / "x.tflite")(np.zeros((8, 4), np.int8)).dtype == np.int8


@pytest.mark.parametrize(
    ("settings", "error", "said"),
    [
        ({}, ct.DataError, r"needs calibration samples, .*Int8\(calibration=x\)"),
        (
            {"calibration": np.full((4, 16, 16, 3), np.nan, np.float32)},
            ct.DataError,
            "'image' becomes NaN or infinite",
        ),
        ({"calibration": np.zeros((4, 9, 9, 3), np.float32)}, ct.DataError, "image"),
        ({"calibration": np.zeros((0, 16, 16, 3), np.float32)}, ct.DataError, "empty"),
    ],
)
def test_unfit_calibration_is_refused(
    settings: dict[str, Any], error: type[Exception], said: str, tmp_path: Path
) -> None:
    with pytest.raises(error, match=said):
        session().export(tmp_path / "x.tflite", quantize=ct.Int8(**settings))
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"scheme": "int4"}, "scheme is 'int4', expected one of int8, int16x8, dynamic, float16"),
        ({"io": "int8", "scheme": "float16"}, "io is 'int8', expected float32 for the scheme float16"),
        ({"ranges": "best"}, "ranges is 'best', expected one of mse"),
        ({"percentile": 20}, "percentile is 20, expected a number above 50"),
        ({"samples": 0}, "samples is 0, expected a whole number from 1"),
        ({"tolerance": 0.01}, "nothing is measured; give validation"),
        ({"tolerance": -1, "validation": ((), ())}, "tolerance is -1, expected a number from 0"),
        ({"on_loss": "cry"}, "on_loss is 'cry', expected one of refuse, warn"),
    ],
)
def test_unfit_settings_are_refused(settings: dict[str, Any], said: str) -> None:
    with pytest.raises(ct.ConfigError, match=said):
        ct.Int8(**settings)


def test_a_model_of_integers_is_not_quantized_again(tmp_path: Path) -> None:
    session().export(tmp_path / "x.tflite", quantize=ct.Int8(calibration=IMAGES, io="float32"))
    again = ct.TrainSession(tmp_path / "x.tflite", ct.TrainConfig(batch_size=4, trainable="none"))
    with pytest.raises(
        ct.ConfigError, match="holds no operator that computes floats and that LiteRT has in integers"
    ):
        again.export(tmp_path / "y.tflite", quantize=ct.Int8(calibration=IMAGES))


def test_accuracy_is_reported_and_a_loss_refused(tmp_path: Path) -> None:
    net, x, y = session(one_layer(np.eye(4))), np.eye(4, dtype=np.float32) + 1, np.eye(4, dtype=np.float32)
    shipped = net.export(tmp_path / "x.tflite", quantize=ct.Int8(calibration=x, validation=(x, y)))
    assert shipped is not None
    assert shipped.judged is not None
    assert shipped.judged.before == shipped.judged.after == {"categorical_accuracy": 1.0}
    assert "categorical_accuracy: 1.0000 in floats, 1.0000 as shipped" in str(shipped)
    bad: dict[str, Any] = {"calibration": x * 1e-4, "validation": (x, y), "tolerance": 0.05}  # all is cut off
    with pytest.raises(ct.ConfigError, match=r"a loss of 0.7500 where 0.05 is allowed; nothing was written"):
        net.export(tmp_path / "y.tflite", quantize=ct.Int8(**bad))
    assert not (tmp_path / "y.tflite").exists()
    with pytest.warns(UserWarning, match=r"where 0.05 is allowed"):
        net.export(tmp_path / "y.tflite", quantize=ct.Int8(**bad, on_loss="warn"))
    assert (tmp_path / "y.tflite").exists()


def test_ranges_leave_outliers_out(tmp_path: Path) -> None:
    x = np.random.default_rng(0).normal(size=(256, 64)).astype(np.float32)
    x[0, 0] = 40.0
    net, found = session(one_layer(np.eye(4, 64), None)), {}
    for ranges in ("minmax", "percentile", "mse"):
        net.export(tmp_path / "x.tflite", quantize=ct.Int8(calibration=x, ranges=ranges, percentile=99.9))
        (tensor,) = ct.load(tmp_path / "x.tflite").module.main.inputs
        assert tensor.quantization is not None
        found[ranges] = tensor.quantization.scale[0]
    assert found["percentile"] < found["mse"] < found["minmax"]


def test_activations_are_fused_before_scales_are_chosen(tmp_path: Path) -> None:
    graph = Graph("net", [new_input("x", 1, 4)])
    y = graph.emit(make("FULLY_CONNECTED"), graph.inputs[0], weight("w", 4, 4), weight("b", 4), name="y")
    z = graph.emit(make("RELU6"), y, name="z")
    x = np.random.default_rng(0).normal(size=(8, 4)).astype(np.float32)
    session(finish(graph, z)).export(tmp_path / "x.tflite", quantize=ct.Int8(calibration=x))
    (node,) = ct.load(tmp_path / "x.tflite").module.main.nodes
    assert node.op.fused_activation_function is Activation.RELU6


def test_the_padding_of_a_maximum_is_no_number(tmp_path: Path) -> None:
    graph = Graph("net", [new_input("x", 1, 4, 4, 2)])
    y = graph.emit(make("LEAKY_RELU", alpha=0.5), graph.inputs[0], name="leaky")
    around = constant(np.array([[0, 0], [1, 1], [1, 1], [0, 0]], np.int32), "around")
    y = graph.emit(make("PADV2"), y, around, constant(np.array(-np.inf, np.float32), "least"), name="padded")
    pool = make("MAX_POOL_2D", padding=Padding.VALID, filter_width=3, filter_height=3)
    y = graph.emit(pool, y, name="y")
    x = np.random.default_rng(0).normal(size=(16, 4, 4, 2)).astype(np.float32)
    net = ct.TrainSession(finish(graph, y), ct.TrainConfig(batch_size=4, trainable="none"))
    net.export(tmp_path / "x.tflite", quantize=ct.Int8(calibration=x, io="float32"))
    found, expected = ct.InferenceSession(tmp_path / "x.tflite")(x), net.predict(x)
    assert np.abs(found - expected).max() <= 0.02 * np.abs(expected).max()


def test_nothing_of_the_session_changes(tmp_path: Path) -> None:
    net = session()
    before = {name: np.array(value) for name, value in net.parameters.items()}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        net.export(tmp_path / "x.tflite", quantize=ct.Int8(calibration=IMAGES))
    for name, value in net.parameters.items():
        np.testing.assert_array_equal(value, before[name])
    assert net.train_step(IMAGES[:4], LABELS[:4]).loss > 0
