"""Steps of integer weights are counted in what their grids span."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import circle_train as ct

INT8 = Path("tests/data/int8_cnn.tflite")

RNG = np.random.default_rng(0)

Y = np.arange(24) % 3

X = (RNG.integers(-60, 60, (24, 8, 8, 3)) + 50 * (Y - 1)[:, None, None, None]).astype(np.int8)

OPTIMIZERS = {
    "adam": ct.optimizers.Adam(1e-3),
    "torch": ct.optimizers.AdamW(1e-3),
    "ort": ct.optimizers.AdamW(1e-3, style="ort"),
    "rmsprop": ct.optimizers.RMSprop(1e-4, centered=True, momentum=0.5, epsilon=1e-3),
    "adagrad": ct.optimizers.Adagrad(1e-3),
}


@pytest.mark.parametrize("backend", ["auto", "reference"])
def test_adaptive_steps_are_counted_in_what_a_grid_spans(backend: str) -> None:
    """The first step of Adam is as long for every weight, in units of its grid; of a narrow channel's own at most 8."""
    model = spread_scales()
    config = ct.TrainConfig(loss="sparse_categorical_crossentropy", batch_size=8)
    trained = ct.TrainSession(model, config, backend=backend)
    before = {name: np.array(value) for name, value in trained.parameters.items()}
    trained.train_step(X[:8], Y[:8])
    known = {t.name: t for t in model.module.main.all_tensors()}
    for name, value in trained.parameters.items():
        moved, scale = np.abs(value - before[name]), np.array(known[name].quantization.scale)
        if name.endswith("bias"):
            assert moved.max() / (127 * 127 * np.mean(scale)) == pytest.approx(1e-3, rel=0.02), name
            continue
        moved = np.moveaxis(moved, 3 if name == "depthwise" else 0, 0).reshape(len(scale), -1).max(1)
        lengths = moved / (127 * np.minimum(np.mean(scale), 8 * scale))
        assert lengths.max() <= 1.001e-3, name
        assert lengths[scale > scale.mean()].max() == pytest.approx(1e-3, rel=0.02), name


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_the_engine_counts_in_the_same_units(name: str, threads: int) -> None:
    rescaled, found = spread_scales(), []
    for backend, count in (("reference", 1), ("auto", threads)):
        config = ct.TrainConfig("sparse_categorical_crossentropy", OPTIMIZERS[name], batch_size=8)
        trained = ct.TrainSession(rescaled, config, backend=backend, threads=count)
        for _ in range(3):
            trained.train_step(X[:8], Y[:8])
        found.append({name: np.array(value) for name, value in trained.parameters.items()})
    for parameter, wanted in found[0].items():
        size = np.abs(wanted).max()
        np.testing.assert_allclose(
            found[1][parameter], wanted, rtol=2e-3, atol=2e-4 * size, err_msg=parameter
        )


def spread_scales() -> ct.Model:
    """The same integers; of every third channel the scale is a thousandth of what it was."""
    model = ct.load(INT8)
    for tensor in model.module.main.all_tensors():
        if tensor.is_constant and tensor.quantization is not None and len(tensor.quantization.scale) > 1:
            scale = tuple(each * (1, 0.001, 2)[i % 3] for i, each in enumerate(tensor.quantization.scale))
            tensor.quantization = replace(tensor.quantization, scale=scale)
    return model


def test_a_channel_of_a_tiny_scale_keeps_what_it_knows() -> None:
    """Steps of the others' length would take all its weights to their grid's ends at once."""
    model = ct.load(INT8)
    conv = next(t for t in model.module.main.all_tensors() if t.name == "conv")
    scale = (conv.quantization.scale[0] * 1e-4, *conv.quantization.scale[1:])
    conv.quantization = replace(conv.quantization, scale=scale)
    config = ct.TrainConfig(loss="sparse_categorical_crossentropy", batch_size=8)
    trained = ct.TrainSession(model, config)
    trained.fit(X, Y, epochs=2, verbose=0)
    steps = np.rint(trained.parameters["conv"][0] / scale[0])
    assert np.abs(steps - conv.data[0]).max() <= 6 * 8 * 0.127 + 1
