"""The magnitudes of a real Fourier transform, of a file that TensorFlow's converter wrote."""

from __future__ import annotations

import numpy as np

import circle_train as ct


def test_magnitudes_are_those_of_the_transform() -> None:
    x = np.random.default_rng(0).normal(size=(2, 64)).astype(np.float32)
    found = ct.InferenceSession("tests/data/control/rfft.tflite")(x)
    np.testing.assert_allclose(found, np.abs(np.fft.rfft(x)), rtol=1e-4, atol=1e-4)
