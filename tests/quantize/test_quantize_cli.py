"""`circle-train quantize`: what it prints, writes and returns."""

from __future__ import annotations

import pathlib

import numpy as np
import pytest
from bfloat16_nets import IMAGES, LABELS, inverted_residual
from picture_net import picture_net

import circle_train as ct
from circle_train.cli.main import main
from circle_train.finetuning.answers import answers
from circle_train.format.metadata.description import Description

SHAPES = pathlib.Path(__file__).parents[1] / "data" / "shapes"


@pytest.fixture
def folder(tmp_path: pathlib.Path) -> pathlib.Path:
    inverted_residual().save(tmp_path / "net.tflite")
    np.save(tmp_path / "x.npy", IMAGES)
    np.save(tmp_path / "y.npy", LABELS)
    return tmp_path


def run(folder: pathlib.Path, *words: object) -> int:
    out = ["quantize", str(folder / "net.tflite"), str(folder / "out.tflite")]
    return main([*out, *map(str, words)])


def test_it_says_what_was_shipped(folder: pathlib.Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert (
        run(folder, "--calibration", folder / "x.npy", "--validation", folder / "x.npy", folder / "y.npy")
        == 0
    )
    said = capsys.readouterr().out
    assert "int8, 10 operators" in said
    assert "accuracy: 0." in said
    assert ct.load(folder / "out.tflite").inputs[0].dtype == np.int8


def test_float16_needs_no_samples(folder: pathlib.Path) -> None:
    assert run(folder, "--scheme", "float16") == 0
    assert (folder / "out.tflite").stat().st_size < 0.7 * (folder / "net.tflite").stat().st_size


def test_an_onnx_file_stays_one(tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]) -> None:
    onnx = pytest.importorskip("onnx")
    w = onnx.numpy_helper.from_array(np.random.default_rng(0).normal(size=(6, 3)).astype(np.float32), "w")
    x, y = (onnx.helper.make_tensor_value_info(name, 1, ["n", size]) for name, size in (("x", 6), ("y", 3)))
    graph = onnx.helper.make_graph([onnx.helper.make_node("MatMul", ["x", "w"], ["y"])], "net", [x], [y], [w])
    onnx.save(
        onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=8),
        tmp_path / "net.onnx",
    )
    np.save(tmp_path / "x.npy", np.random.default_rng(1).normal(size=(20, 6)).astype(np.float32))
    words = [
        "quantize",
        str(tmp_path / "net.onnx"),
        str(tmp_path / "out.onnx"),
        "--calibration",
        str(tmp_path / "x.npy"),
    ]
    assert main(words) == 0
    assert "int8 (QDQ), 1 operators" in capsys.readouterr().out
    assert "QuantizeLinear" in {node.op_type for node in onnx.load(tmp_path / "out.onnx").graph.node}
    assert main([*words, "--io", "int8"]) == 1
    assert "an .onnx file takes and gives floats" in capsys.readouterr().err


def test_a_users_error_is_one_line(folder: pathlib.Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(folder) == 1
    assert "error: quantize: the scheme int8 needs calibration samples" in capsys.readouterr().err
    assert not (folder / "out.tflite").exists()


@pytest.fixture
def told(tmp_path: pathlib.Path) -> pathlib.Path:
    """A model whose file says what becomes of pixels: other numbers than 0 … 1."""
    said = Description(kind="image", mean=(127.5,), std=(127.5,), labels=("circle", "square", "triangle"))
    model = picture_net().with_head(said.labels).described(said)
    model.save(tmp_path / "net.tflite")
    return tmp_path


def test_folders_calibrate_and_judge_as_the_file_says(
    told: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """What runs in integers answers for photographs what the floats answer."""
    pytest.importorskip("PIL")
    assert run(told, "--calibration", SHAPES, "--validation", SHAPES) == 0
    assert "as shipped" in capsys.readouterr().out
    floats, shipped = (answers(ct.load(told / name), [SHAPES]) for name in ("net.tflite", "out.tflite"))
    for one, other in zip(floats, shipped, strict=True):
        assert one.name == other.name
        np.testing.assert_allclose(other.scores, one.scores, atol=0.03)


@pytest.mark.parametrize(("io", "zero"), [("int8", 0), ("uint8", 128)])
def test_integers_of_pictures_are_the_pixels(io: str, zero: int, told: pathlib.Path) -> None:
    """Less 128 where they have a sign: who feeds a microcontroller rescales nothing."""
    pytest.importorskip("PIL")
    assert run(told, "--calibration", SHAPES, "--io", io) == 0
    model = ct.load(told / "out.tflite")
    (given,), (made,) = model.module.main.inputs, model.module.main.outputs
    assert given.dtype.numpy == made.dtype.numpy == np.dtype(io)
    assert given.quantization is not None
    assert given.quantization.zero_point == (zero,)
    np.testing.assert_allclose(given.quantization.scale, 1 / 127.5, rtol=1e-6)
    for one, other in zip(
        answers(ct.load(told / "net.tflite"), [SHAPES]), answers(model, [SHAPES]), strict=True
    ):
        np.testing.assert_allclose(other.scores, one.scores, atol=0.03)


def test_a_folder_is_predicted_as_the_file_says(told: pathlib.Path) -> None:
    pytest.importorskip("PIL")
    model = ct.load(told / "net.tflite")
    predicted = ct.TrainSession(model, ct.TrainConfig(loss="mse")).predict(SHAPES)
    scores = [answer.scores for answer in answers(model, [SHAPES])]
    np.testing.assert_allclose(predicted, scores, atol=1e-6)


def test_three_words_are_no_samples_and_labels(
    folder: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(folder, "--calibration", folder / "x.npy", "--validation", "a", "b", "c") == 1
    assert "expected samples and labels, or one folder" in capsys.readouterr().err
