"""Scales and zero points with which nothing can be computed: one sentence each, from whatever asks first."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import circle_train as ct
from circle_train.errors import CircleTrainError
from circle_train.format import read, write
from circle_train.ir import Module, Quantization, Tensor

X = np.zeros((2, 8, 8, 3), np.int8)


def damaged(name: str, change: Callable[[Quantization], Quantization]) -> bytes:
    module: Module = read(Path("tests/data/int8_cnn.tflite"))
    tensors: dict[str, Tensor] = {t.name: t for t in module.main.all_tensors()}
    found = tensors[name].quantization
    assert found is not None
    tensors[name].quantization = change(found)
    return write(module)


CASES = {
    "scale 0": ("first", lambda q: replace(q, scale=(0.0,)), "scale.*'first'.*is 0.0"),
    "scale NaN": (
        "dense",
        lambda q: replace(q, scale=(float("nan"), *q.scale[1:])),
        "scale.*'dense'.*is nan",
    ),
    "scale 1e30": ("total", lambda q: replace(q, scale=(1e30,)), r"scale.*'total'.*is 1.*e\+30"),
    "scale < 0": ("x", lambda q: replace(q, scale=(-0.1,)), "scale.*'x'.*is -0.1"),
    "zero point": (
        "mean",
        lambda q: replace(q, zero_point=(200,)),
        "zero point.*'mean'.*is 200, expected -128 to 127",
    ),
    "scale beneath the normal floats": (
        "conv",
        lambda q: replace(q, scale=(1e-45, *q.scale[1:])),
        "scale.*'conv'.*expected 1.1.*e-38",
    ),
    "no scale": ("first", lambda q: replace(q, scale=(), zero_point=()), "'first'.*expected a scale"),
    "axis": ("conv", lambda q: replace(q, axis=1), "8 scales along dimension 1"),
    "axis beyond": ("conv", lambda q: replace(q, axis=7), "8 scales along dimension 7"),
}


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("backend", ["auto", "reference"])
def test_one_sentence(case: str, backend: str) -> None:
    name, change, message = CASES[case]
    config = ct.TrainConfig(loss="sparse_categorical_crossentropy", batch_size=2)
    for use in (
        lambda model: ct.InferenceSession(model, backend=backend)(X),
        lambda model: ct.TrainSession(model, config, backend=backend).prepare(),
    ):
        with pytest.raises(CircleTrainError, match=message) as raised:
            use(ct.load(damaged(name, change)))
        assert "\n" not in str(raised.value)


def test_an_activation_of_several_scales_is_not_trained() -> None:
    """Of which one was taken for all."""
    of = {"zero_point": (0,) * 8, "axis": 3}
    content = damaged("first", lambda q: replace(q, scale=tuple(q.scale[0] * i for i in range(1, 9)), **of))
    session = ct.TrainSession(
        ct.load(content), ct.TrainConfig(loss="sparse_categorical_crossentropy", batch_size=2)
    )
    with pytest.raises(CircleTrainError, match=r"'first' .* has 8 scales along dimension 3"):
        session.prepare()


def test_a_bias_beyond_its_bits_is_not_exported(tmp_path: Path) -> None:
    config = ct.TrainConfig(loss="sparse_categorical_crossentropy", batch_size=2)
    trained = ct.TrainSession("tests/data/int8_cnn.tflite", config)
    trained.parameters["dense:bias"] = np.full(3, 1e9, np.float32)
    with pytest.raises(ct.ConfigError, match="'dense:bias' was trained beyond the 32 bits"):
        trained.export(tmp_path / "no.tflite")
    assert not (tmp_path / "no.tflite").exists()


def test_two_scales_for_one_buffer_are_two_weights(tmp_path: Path) -> None:
    """Equal bytes that mean other numbers: each is trained, and the file gives each its own."""
    module = read(Path("tests/data/int8_cnn.tflite"))
    tensors = {t.name: t for t in module.main.all_tensors()}
    tensors["depthwise:bias"].buffer = tensors["conv:bias"].buffer
    tied = tmp_path / "tied.tflite"
    tied.write_bytes(write(module))
    config = ct.TrainConfig(loss="sparse_categorical_crossentropy", batch_size=2)
    trained = ct.TrainSession(tied, config)
    trained.export(tmp_path / "same.tflite")
    assert (tmp_path / "same.tflite").read_bytes() == tied.read_bytes()
    trained.train_step(X, np.array([0, 2]))
    trained.export(tmp_path / "out.tflite")
    after = {t.name: t for t in read(tmp_path / "out.tflite").main.all_tensors()}
    for name in ("conv:bias", "depthwise:bias"):
        unit = np.array(after[name].quantization.scale)
        np.testing.assert_array_equal(after[name].data, np.rint(trained.parameters[name] / unit))
