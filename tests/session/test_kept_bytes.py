"""What a frozen beginning of an integer model gives is kept in bytes, and nothing else changes."""

from __future__ import annotations

import numpy as np
import pytest

import circle_train as ct
from circle_train.backends import native
from circle_train.data.dataset import Dataset
from circle_train.runtime.kept import KeptDataset
from circle_train.session.keeping import keep_results, kept_bytes

pytestmark = pytest.mark.skipif(not native.is_available(), reason="the native engine was not built")
X = np.random.default_rng(0).integers(-128, 128, (20, 8, 8, 3)).astype(np.int8)
Y = np.arange(20) % 3


def session(how: str, batch_size: int = 8) -> ct.TrainSession:
    """With a head of floats, or all in integers and the end of it trained."""
    model = ct.load("tests/data/int8_cnn.tflite")
    trainable = "all" if how == "head" else ("last", 2)
    config = ct.TrainConfig(
        loss="sparse_categorical_crossentropy", batch_size=batch_size, trainable=trainable
    )
    return ct.TrainSession(model.with_float_head(2) if how == "head" else model, config)


@pytest.mark.parametrize("how", ["head", "integers"])
def test_a_byte_for_each_number(how: str) -> None:
    trained = session(how)
    data, _ = keep_results(trained, Dataset([X], [Y]), None, "auto")
    assert isinstance(data, KeptDataset)
    assert [array.dtype for array in data.store.arrays] == [np.int8]
    assert kept_bytes(data) == 20 * 8


@pytest.mark.parametrize("how", ["head", "integers"])
@pytest.mark.parametrize("batch_size", [1, 8])
def test_the_bits_are_those_of_computing_it_again(how: str, batch_size: int) -> None:
    weights = []
    for keep in (False, True):
        trained = session(how, batch_size)
        trained.fit(X, Y, epochs=3, keep_frozen=keep, verbose=0)
        weights.append({name: np.array(value) for name, value in trained.parameters.items()})
    for name, value in weights[0].items():
        np.testing.assert_array_equal(value, weights[1][name])
