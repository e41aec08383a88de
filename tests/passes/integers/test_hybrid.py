"""Floats times weights in integers: rounded while running, as LiteRT rounds them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from integer_weights import by_litert, stored

import circle_train as ct
from circle_train.ops.attributes import Activation, Padding

RNG = np.random.default_rng(0)


CASES = [
    ("FULLY_CONNECTED", (7, 64), (33, 64), {"asymmetric_quantize_inputs": True}),
    ("FULLY_CONNECTED", (1, 301), (10, 301), {"asymmetric_quantize_inputs": True}),
    ("CONV_2D", (2, 9, 8, 6), (20, 3, 3, 6), {}),
    ("CONV_2D", (1, 9, 8, 16), (20, 1, 1, 16), {"stride_h": 2, "stride_w": 2}),
    ("CONV_2D", (2, 9, 8, 16), (20, 1, 1, 16), {}),
    ("FULLY_CONNECTED", (5, 64), (33, 64), {}),
    ("FULLY_CONNECTED", (5, 7), (33, 7), {}),
    ("FULLY_CONNECTED", (5, 7), (33, 7), {"asymmetric_quantize_inputs": True}),
]


@pytest.mark.parametrize("bits", [8, 4])
@pytest.mark.parametrize("is_along", [True, False])
@pytest.mark.parametrize(("name", "fed", "weights", "options"), CASES)
def test_the_numbers_are_those_of_litert(
    name: str,
    fed: tuple[int, ...],
    weights: tuple[int, ...],
    options: dict[str, Any],
    is_along: bool,
    bits: int,
) -> None:
    """Also where LiteRT has kernels of its own for int4 that round what comes in otherwise."""
    assert_litert_agrees(stored(name, fed, weights, weights[0] if is_along else 1, bits, **options), fed)


@pytest.mark.parametrize(("name", "fed", "weights", "options"), CASES)
def test_bytes_that_older_files_call_unsigned_have_signs(
    tmp_path: Path, name: str, fed: tuple[int, ...], weights: tuple[int, ...], options: dict[str, Any]
) -> None:
    """They are trained as such too, and written under the type that they had."""
    model = stored(name, fed, weights, 1, bits=-8, **options)
    assert_litert_agrees(model, fed)
    x = RNG.normal(size=fed).astype(np.float32)
    config = ct.TrainConfig(loss="mse", batch_size=fed[0], optimizer=ct.optimizers.SGD(1e-2))
    session = ct.TrainSession(ct.load(model), config)
    before = session.predict(x)
    session.train_step(x, np.zeros_like(before))
    session.export(tmp_path / "trained.tflite")
    found = by_litert((tmp_path / "trained.tflite").read_bytes(), x)
    np.testing.assert_allclose(found, session.predict(x), rtol=0, atol=2e-2 * np.abs(before).max())
    assert np.abs(found - before).max() > 0 and np.square(found).sum() < np.square(before).sum()


@pytest.mark.parametrize(
    ("fed", "weights", "options"),
    [
        ((2, 9, 8, 8), (1, 3, 3, 8), {}),
        ((1, 9, 8, 8), (1, 3, 2, 8), {"stride_h": 2, "stride_w": 2}),
        ((3, 9, 8, 100), (1, 5, 5, 200), {"depth_multiplier": 2}),
        ((3, 9, 8, 32), (1, 6, 6, 32), {}),
        ((3, 9, 8, 32), (1, 6, 6, 32), {"padding": Padding.VALID, "stride_h": 2, "stride_w": 2}),
        ((2, 9, 8, 8), (1, 3, 3, 8), {"fused_activation_function": Activation.RELU6}),
    ],
)
def test_depthwise_convolutions_too(
    fed: tuple[int, ...], weights: tuple[int, ...], options: dict[str, Any]
) -> None:
    assert_litert_agrees(stored("DEPTHWISE_CONV_2D", fed, weights, weights[3], **options), fed)


def assert_litert_agrees(model: bytes, fed: tuple[int, ...]) -> None:
    """Samples of several sizes, on either side of 0."""
    sizes = np.geomspace(0.1, 5, fed[0]).reshape(-1, *[1] * (len(fed) - 1))
    for shift in (0, 3, -3):
        x = (RNG.normal(size=fed) * sizes + shift).astype(np.float32)
        x.reshape(-1)[:3] = 0
        wanted = by_litert(model, x)
        for backend in ("reference", "auto"):
            found = ct.InferenceSession(ct.load(model), backend=backend)(x)
            np.testing.assert_allclose(found, wanted, rtol=0, atol=2e-6 * np.abs(wanted).max())


@pytest.mark.parametrize("value", [np.nan, np.inf, 3e38])
@pytest.mark.parametrize("backend", ["reference", "auto"])
def test_a_sample_that_is_not_finite_spoils_no_other(value: float, backend: str) -> None:
    """Nor does one whose range is beyond float32; what comes of it itself is no number."""
    session = ct.InferenceSession(ct.load(stored("FULLY_CONNECTED", (3, 20), (5, 20), 1)), backend=backend)
    x = RNG.normal(size=(3, 20)).astype(np.float32)
    wanted = session(x)
    x[1, :2] = value, -value
    found = session(x)
    assert np.isnan(found[1]).all()
    np.testing.assert_array_equal(found[[0, 2]], wanted[[0, 2]])


def test_rows_of_zeros_give_the_bias() -> None:
    session = ct.InferenceSession(ct.load(stored("FULLY_CONNECTED", (2, 20), (5, 20), 5)))
    found = session(np.zeros((2, 20), np.float32))
    bias = next(t.data for t in session.model.module.main.all_tensors() if t.name == "b")
    np.testing.assert_array_equal(found, np.stack([bias, bias]))


def test_training_computes_what_the_weights_stand_for() -> None:
    """Its gradients know of no rounding."""
    model = ct.load(stored("FULLY_CONNECTED", (4, 20), (5, 20), 5))
    x = RNG.normal(size=(4, 20)).astype(np.float32)
    w = next(t for t in model.module.main.all_tensors() if t.name == "w")
    bias = next(t.data for t in model.module.main.all_tensors() if t.name == "b")
    assert w.quantization is not None
    real = w.data * np.array(w.quantization.scale, np.float32)[:, None]
    found = ct.TrainSession(model, ct.TrainConfig(loss="mse", batch_size=4)).predict(x)
    np.testing.assert_allclose(found, x @ real.T + bias, rtol=1e-4, atol=1e-5)
