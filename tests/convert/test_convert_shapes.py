"""Open sizes of an ONNX model, fixed from Python and on the command line."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

onnx = pytest.importorskip("onnx")
from onnx import TensorProto, helper, numpy_helper  # noqa: E402

import circle_train as ct  # noqa: E402
from circle_train import convert  # noqa: E402
from circle_train.cli.main import main  # noqa: E402
from circle_train.convert.other import referee  # noqa: E402

W = np.random.default_rng(0).standard_normal((6, 3)).astype(np.float32)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """x and mask, n × t × 6 and n × t × 1: their product, averaged over t, through a dense layer."""
    info = lambda name, *shape: helper.make_tensor_value_info(name, TensorProto.FLOAT, list(shape))  # noqa: E731
    nodes = [
        helper.make_node("Mul", ["x", "mask"], ["a"]),
        helper.make_node("ReduceMean", ["a"], ["b"], axes=[1], keepdims=0),
        helper.make_node("MatMul", ["b", "w"], ["y"]),
    ]
    graph = helper.make_graph(
        nodes, "g", [info("x", "n", "t", 6), info("mask", "n", "t", 1)], [info("y", "n", 3)],
        [numpy_helper.from_array(W, "w")],
    )  # fmt: skip
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]), tmp_path / "net.onnx")
    return tmp_path / "net.onnx"


def test_shapes_fix_what_is_open(path: Path) -> None:
    model = ct.load(path, shapes={"x": (-1, 5, 6)})
    assert [info.shape for info in model.inputs] == [(-1, 5, 6), (-1, 5, 1)]
    x, mask = np.ones((2, 5, 6), np.float32), np.ones((2, 5, 1), np.float32)
    session = ct.TrainSession(model, ct.TrainConfig(loss="mse", batch_size=2))
    np.testing.assert_allclose(session.predict([x, mask]), np.stack([W.sum(0)] * 2), rtol=1e-5)


@pytest.mark.parametrize("suffix", ["circle", "tflite"])
def test_shapes_fix_what_a_converted_file_leaves_open(path: Path, suffix: str) -> None:
    """As a file says it, or as it is asked for; what is asked for is saved."""
    converted = path.with_suffix(f".{suffix}")
    ct.load(path).save(converted)
    x, mask = np.ones((2, 5, 6), np.float32), np.ones((2, 5, 1), np.float32)
    config = ct.TrainConfig(loss="mse", batch_size=2)
    ct.TrainSession(converted, config).train_step([x, mask], np.zeros((2, 3), np.float32))
    model = ct.load(converted, shapes={"x": (-1, 5, 6), "mask": (-1, 5, 1)})
    assert [info.shape for info in model.inputs] == [(-1, 5, 6), (-1, 5, 1)]
    model.save(converted)
    session = ct.TrainSession(converted, config)
    session.train_step([x, mask], np.zeros((2, 3), np.float32))
    assert session.predict([x, mask]).shape == (2, 3)
    for wrong in ({"x": (-1, 5, 7)}, {"x": (-1, 0, 6)}, {"x": (-1, 5)}, {"z": (1, 5, 6)}):
        with pytest.raises(ct.ConfigError, match=r"only open sizes can be fixed|inputs are x, mask"):
            ct.load(converted, shapes=wrong)


def test_options_that_do_nothing_are_refused(path: Path) -> None:
    converted = path.with_suffix(".tflite")
    ct.load(path).save(converted)
    for source, options, message in (
        (path, {"nonsense": 1}, "'nonsense' is not known here, expected one of engine, io, fold_batchnorm"),
        (
            converted,
            {"nonsense": 1},
            "'nonsense' is not known here, a Circle or TFLite model takes shapes and inputs alone",
        ),
        (converted, {"io": "nhwc"}, "'io' is not known here"),
        (
            ct.load(path),
            {"shapes": {"x": (1, 5, 6)}},
            "'shapes' is not known here, the model is loaded already",
        ),
    ):
        with pytest.raises(ct.ConfigError, match=message):
            ct.load(source, **options)


@pytest.mark.parametrize(
    ("shapes", "message"),
    [
        ({"x": (-1, 5, 6), "mask": (-1, 4, 1)}, "'t' is 4, but another input's 't' is 5; give both the same"),
        ({"x": (-1, 5, 7)}, r"as \(-1, 5, 7\), the model has \('n', 't', 6\); only open sizes"),
        ({"x": (-1, 0, 6)}, "only open sizes can be fixed"),
        ({"z": (1, 5, 6)}, "names 'z', the model's inputs are x, mask"),
    ],
)
def test_contradictions_are_refused(path: Path, shapes: dict[str, tuple[int, ...]], message: str) -> None:
    with pytest.raises(ct.ConversionError, match=message):
        ct.load(path, shapes=shapes)


def test_verifying_runs_open_sizes_larger_than_one(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []
    original = referee._refer
    monkeypatch.setattr(referee, "_refer", lambda s, n, feeds: seen.append(feeds) or original(s, n, feeds))
    model = ct.load(path)
    assert convert.verify(path, model.module)["y"] < 1e-6
    assert {name: value.shape for name, value in seen[0].items()} == {"x": (2, 12, 6), "mask": (2, 12, 1)}


def test_a_model_that_no_referee_runs_is_no_crash(
    path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise RuntimeError("unsupported IR version: 99\nand much more")

    monkeypatch.setattr(referee, "_refer", refuse)
    assert main(["convert", str(path), str(path.with_suffix(".circle"))]) == 1
    shown = capsys.readouterr().err
    assert "its referee does not run it (unsupported IR version: 99); install onnxruntime" in shown
    assert not path.with_suffix(".circle").exists()


def test_every_command_takes_them(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = [str(path), "--shape", "x=Nx5x6"]
    assert main(["info", *words, "--json"]) == 0
    inputs = json.loads(capsys.readouterr().out)["inputs"]
    assert [i["shape"] for i in inputs] == [[-1, 5, 6], [-1, 5, 1]]
    assert main(["check", *words, "--json"]) == 0
    out = path.with_suffix(".circle")
    assert main(["convert", str(path), str(out), "--shape", "x=1x5x6"]) == 0
    assert ct.load(out).inputs[1].shape == (1, 5, 1)
    data = path.with_name("data.npz")
    np.savez(data, x=np.ones((4, 5, 6), np.float32), mask=np.ones((4, 5, 1), np.float32))
    np.save(path.with_name("y.npy"), np.zeros((4, 3), np.float32))
    train = [
        "--input",
        str(data),
        "--expected",
        str(path.with_name("y.npy")),
        "--loss",
        "mse",
        "--epochs",
        "1",
    ]
    written = ["--export", str(path.with_name("trained.onnx"))]
    assert main(["train", *words, *train, *written, "--batch-size", "2"]) == 0


def test_a_shape_that_initializers_compute_is_a_constant() -> None:
    """Floats among them may be weights, so what is computed of them stays; of a shape the numbers are wanted."""
    held = [
        numpy_helper.from_array(np.array(numbers, np.float32), name)
        for name, numbers in (("w", [1, 1.5]), ("two", [2, 2]))
    ]
    nodes = [
        helper.make_node("Mul", ["w", "two"], ["product"]),
        helper.make_node("Cast", ["product"], ["shape"], to=TensorProto.INT64),
        helper.make_node("Reshape", ["x", "shape"], ["y"]),
    ]
    graph = helper.make_graph(
        nodes, "g", [helper.make_tensor_value_info("x", TensorProto.FLOAT, [6])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [2, 3])], held,
    )  # fmt: skip
    model = ct.load(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]))
    assert [one.name for one in model.operators] == ["RESHAPE"]
    x = np.arange(6, dtype=np.float32)
    np.testing.assert_array_equal(ct.InferenceSession(model)(x), x.reshape(2, 3))
