"""Weights of four bits, two to a byte in the file: computed, trained, and written back."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from integer_weights import by_litert, in_integers, stored

import circle_train as ct
from circle_train import format
from circle_train.backends import native
from circle_train.ir import Buffer, DType, Tensor, TensorType
from circle_train.ir.tensor_type import Array
from circle_train.passes.integers.four_bits import Unpacked, packed, unpacked

RNG = np.random.default_rng(0)
FULL = {"asymmetric_quantize_inputs": True}


@pytest.mark.parametrize("count", [1, 2, 15, 16])
@pytest.mark.parametrize("dtype", [DType.INT4, DType.UINT4])
def test_what_is_packed_is_unpacked(count: int, dtype: DType) -> None:
    kind = np.int8 if dtype is DType.INT4 else np.uint8
    values = (np.arange(count) - (8 if dtype is DType.INT4 else 0)).astype(kind)
    found = unpacked(Tensor("w", TensorType(dtype, (count,)), Buffer(packed(values))))
    np.testing.assert_array_equal(found, values)


@pytest.mark.parametrize("shape", [(33, 64), (3, 7)])
@pytest.mark.parametrize("scales", [1, None])
@pytest.mark.parametrize("kind", ["float", "int8"])
def test_they_are_computed_trained_and_given_back(
    kind: str, scales: int | None, shape: tuple[int, int], tmp_path: Path
) -> None:
    """As LiteRT computes them, before and after; what was not trained is the file itself."""
    fed, count = (40, shape[1]), scales or shape[0]
    if kind == "float":
        model = stored("FULLY_CONNECTED", fed, shape, count, 4, **FULL)
        x: Array = RNG.normal(size=fed).astype(np.float32)
    else:
        model, x = in_integers(fed, shape, count, 4), RNG.integers(-128, 128, fed).astype(np.int8)
    wanted = by_litert(model, x)
    assert_alike(ct.InferenceSession(ct.load(model))(x), wanted)
    config = ct.TrainConfig(loss="mse", batch_size=40, optimizer=ct.optimizers.SGD(0.05))
    session = ct.TrainSession(ct.load(model), config)
    session.export(tmp_path / "same.tflite")
    assert (tmp_path / "same.tflite").read_bytes() == model
    losses = [float(session.train_step(x, np.zeros((40, shape[0]), np.float32)).loss or 0) for _ in range(5)]
    assert losses[-1] < losses[0]
    session.export(tmp_path / "trained.tflite")
    trained = (tmp_path / "trained.tflite").read_bytes()
    w = next(t for t in format.read(trained).main.all_tensors() if t.name == "w")
    assert w.dtype is DType.INT4 and len(trained) == len(model)
    assert_alike(ct.InferenceSession(ct.load(trained))(x), by_litert(trained, x))
    assert not np.array_equal(by_litert(trained, x), wanted)


def assert_alike(found: Array, wanted: Array) -> None:
    """Floats to their rounding; integers the same but near halves, of which LiteRT sends 31.494 up to 32."""
    if wanted.dtype == np.int8:
        apart = np.abs(found.astype(int) - wanted)
        assert apart.max() <= 1 and (apart > 0).mean() <= 0.05
    else:
        np.testing.assert_allclose(found, wanted, rtol=0, atol=2e-6 * np.abs(wanted).max())


@pytest.mark.skipif(not native.is_available(), reason="the native engine was not built")
@pytest.mark.parametrize("kind", ["float", "int8"])
def test_an_engine_with_panels_keeps_no_byte_for_each(kind: str) -> None:
    """Half of what int8 takes lies in the file, and nothing of it anywhere else."""
    if kind == "float":
        model = stored("FULLY_CONNECTED", (2, 64), (33, 64), 33, 4, **FULL)
    else:
        model = in_integers((2, 64), (33, 64), 33, 4)
    infer = ct.InferenceSession(ct.load(model))
    infer(np.ones((2, 64), infer.model.inputs[0].dtype))
    held = [t.buffer for t in infer._graph.all_tensors() if isinstance(t.buffer, Unpacked)]
    assert held
    for buffer in held:
        assert buffer._made() is None
        assert buffer.behind.nbytes == 33 * 64 // 2


@pytest.mark.parametrize("bits", [4, 8])
def test_what_was_trained_between_floats_is_what_the_file_computes(bits: int, tmp_path: Path) -> None:
    """Weights are rounded while they learn: steps far below one of four bits are not lost when the file is written."""
    model, x = (
        stored("FULLY_CONNECTED", (40, 16), (5, 16), 5, bits),
        RNG.normal(size=(40, 16)).astype(np.float32),
    )
    y = (x @ RNG.normal(size=(16, 5)) * 0.1).astype(np.float32)
    config = ct.TrainConfig(loss="mse", batch_size=40, optimizer=ct.optimizers.Adam(learning_rate=3e-4))
    session = ct.TrainSession(ct.load(model), config)
    session.fit(x, y, epochs=60, verbose=0)
    session.export(tmp_path / "trained.tflite")
    again = ct.TrainSession(tmp_path / "trained.tflite", config)
    np.testing.assert_allclose(session.predict(x), again.predict(x), rtol=1e-5, atol=1e-5)
    assert not np.array_equal(session.parameters["w"], again.parameters["w"])
