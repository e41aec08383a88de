"""The mean of the last steps' weights, against the same mean by hand."""

from __future__ import annotations

import numpy as np
from networks import mlp

import circle_train as ct
from circle_train.finetuning.averaged import STEADY, Averaged
from circle_train.fitting.callback import Callback, Logs
from circle_train.ir.tensor_type import Array

RANDOM = np.random.default_rng(5)
X, Y = RANDOM.normal(size=(40, 6)).astype(np.float32), RANDOM.integers(0, 3, 40).astype(np.int32)


class Seen(Callback):
    """All weights after each step, and those that are judged; it is told of a step before the mean takes their place."""

    def __init__(self) -> None:
        self.steps_seen: list[Array] = []
        self.judged: list[Array] = []

    def on_batch_end(self, batch: int, logs: Logs) -> None:
        self.steps_seen.append(self.session.parameters.flat())

    def on_epoch_end(self, epoch: int, logs: Logs) -> None:
        self.judged.append(self.session.parameters.flat())


def fitted(*callbacks: Callback) -> ct.TrainSession:
    config = ct.TrainConfig(loss="sparse_categorical_crossentropy", optimizer="adam", batch_size=10)
    session = ct.TrainSession(mlp(), config, seed=3)
    session.fit(X, Y, epochs=5, validation_data=(X, Y), callbacks=callbacks, verbose=0)
    return session


def test_the_mean_is_judged_and_stays_and_the_weights_train_on() -> None:
    alone, seen = Seen(), Seen()
    fitted(alone)
    session = fitted(seen, Averaged())
    np.testing.assert_array_equal(seen.steps_seen, alone.steps_seen)
    mean = seen.steps_seen[0].astype(np.float64)
    for step, weights in enumerate(seen.steps_seen[1:], start=1):
        share = min(STEADY, (step + 1) / (step + 10))
        mean = share * mean + (1 - share) * weights
        if step % 4 == 3:
            np.testing.assert_allclose(seen.judged[step // 4], mean, rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(session.parameters.flat(), seen.judged[-1])
    assert abs(seen.judged[-1] - alone.judged[-1]).max() > 1e-4
