"""Quantisation-aware training: its rounding and gradients, and that what ships is what was trained."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from bfloat16_nets import IMAGES, LABELS, inverted_residual

import circle_train as ct
from circle_train.ops.internal.integers.round_as_shipped import RoundToScale, RoundWeights
from circle_train.settings.as_json import from_dict, to_dict


def session(**settings: object) -> ct.TrainSession:
    config = ct.TrainConfig(
        loss="categorical_crossentropy",
        optimizer=ct.optimizers.Adam(learning_rate=1e-3),
        batch_size=4,
        metrics=["categorical_accuracy"],
        quantize=ct.Int8(**settings),  # type: ignore[arg-type]
    )
    return ct.TrainSession(inverted_residual(), config)


def test_gradients_pass_as_in_torch() -> None:
    torch = pytest.importorskip("torch")
    x = torch.randn(1000, generator=torch.manual_seed(0)) * 3
    x.requires_grad_(True)
    y = torch.fake_quantize_per_tensor_affine(x, 0.015, 20, -128, 127)
    y.sum().backward()
    op = RoundToScale(0.015, -148, 107)
    values = x.detach().numpy()
    np.testing.assert_allclose(op.forward(values), y.detach().numpy(), atol=1e-6)
    np.testing.assert_array_equal(op.grad_x(np.ones_like(values), values), x.grad.numpy())


def test_weights_round_as_in_torch() -> None:
    torch = pytest.importorskip("torch")
    w = np.random.default_rng(0).normal(size=(8, 3, 3, 4)).astype(np.float32)
    scale = torch.tensor(np.abs(w).max(axis=(1, 2, 3)) / 127)
    zero = torch.zeros(8, dtype=torch.int32)
    expected = torch.fake_quantize_per_channel_affine(torch.tensor(w), scale, zero, 0, -127, 127)
    np.testing.assert_allclose(RoundWeights(0).forward(w), expected.numpy(), atol=1e-6)


def test_the_last_epochs_round_and_the_scales_ship(tmp_path: Path) -> None:
    net = session(epochs=2, calibration=IMAGES)
    history = net.fit(IMAGES, LABELS, epochs=3, verbose=0).history
    assert len(history["loss"]) == 3
    rounding = net.programs.rounding
    assert rounding is not None
    net.export(tmp_path / "x.tflite", quantize=ct.Int8())
    made = {t.name: t.quantization for t in ct.load(tmp_path / "x.tflite").module.main.all_tensors()}
    for name in ("image", "first", "dw", "sum", "fc"):
        assert made[name] == rounding.scales[name]


def test_what_was_trained_is_what_ships(tmp_path: Path) -> None:
    """The session's own outputs are the shipped model's, but for a step of the last layer here and there."""
    net = session(calibration=IMAGES)
    net.fit(IMAGES, LABELS, epochs=2, verbose=0)
    net.export(tmp_path / "x.tflite", quantize=ct.Int8(io="float32"))
    trained, shipped = net.predict(IMAGES), ct.InferenceSession(tmp_path / "x.tflite")(IMAGES)
    rounding = net.programs.rounding
    assert rounding is not None
    assert np.abs(trained - shipped).max() <= 2 * rounding.scales["fc"].scale[0]


def test_rounding_calibrates_on_the_data_of_the_fit(tmp_path: Path) -> None:
    net = session()
    net.fit(IMAGES, LABELS, epochs=1, verbose=0)
    assert net.export(tmp_path / "x.tflite", quantize=ct.Int8()) is not None


def test_a_longer_fit_begins_in_floats_again() -> None:
    net = session(calibration=IMAGES)
    net.fit(IMAGES, LABELS, epochs=1, verbose=0)
    seen = []
    watch = ct.callbacks.LambdaCallback(
        on_epoch_end=lambda epoch, logs: seen.append(net.programs.rounding is None)
    )
    net.fit(IMAGES, LABELS, epochs=3, verbose=0, callbacks=watch)
    assert seen == [True, True, False]


def test_what_a_frozen_beginning_gave_in_floats_is_not_used_for_integers() -> None:
    losses = []
    for keep in (False, True):
        net = session(calibration=IMAGES)
        net.config = net.config.replace(trainable=("last", 2))
        net.fit(IMAGES, LABELS, epochs=3, verbose=0, keep_frozen=keep, shuffle=False)
        losses.append(net.history.history["loss"])
    np.testing.assert_allclose(*losses, rtol=1e-6)


def test_settings_survive_json() -> None:
    config = ct.TrainConfig(quantize=ct.Int8(epochs=3, scheme="int16x8", calibration=IMAGES))
    found = from_dict(to_dict(config)).quantize
    assert found is not None
    assert (found.epochs, found.scheme, found.io, found.calibration) == (3, "int16x8", "float32", None)


def test_schemes_that_round_nothing_are_refused() -> None:
    with pytest.raises(ct.ConfigError, match=r"the scheme float16 rounds nothing that training could learn"):
        ct.TrainConfig(quantize=ct.Int8(scheme="float16"))
    with pytest.raises(ct.ConfigError, match=r"quantize is 'int8', expected ct.Int8"):
        ct.TrainConfig(quantize="int8")  # type: ignore[arg-type]


def test_a_resumed_fit_rounds_to_the_scales_that_it_had(tmp_path: Path) -> None:
    """Broken off among the epochs that round, it ends as one never broken off: to the bit, in weights and in the file."""
    whole = session(epochs=2, samples=8)
    whole.fit(IMAGES, LABELS, epochs=3, verbose=0)
    broken = session(epochs=2, samples=8)
    kept = ct.callbacks.ModelCheckpoint(path=tmp_path / "{epoch}.safetensors")
    broken.fit(IMAGES, LABELS, epochs=3, verbose=0, callbacks=[kept])
    resumed = session(epochs=2, samples=8)
    resumed.load_checkpoint(tmp_path / "2.safetensors")
    assert resumed.programs.rounding == whole.programs.rounding is not None
    resumed.fit(IMAGES, LABELS, epochs=3, verbose=0)
    for name, value in whole.parameters.items():
        np.testing.assert_array_equal(resumed.parameters[name], value)
    for net in (whole, resumed):
        net.export(tmp_path / f"{net is whole}.tflite", quantize=ct.Int8())
    assert (tmp_path / "True.tflite").read_bytes() == (tmp_path / "False.tflite").read_bytes()
