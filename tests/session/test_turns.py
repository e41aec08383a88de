"""One session in several threads: inference waits, training beside training is refused."""

from __future__ import annotations

import copy
import pickle
import threading
from concurrent.futures import ThreadPoolExecutor

import networks
import numpy as np
import pytest

import circle_train as ct

CONFIG = ct.TrainConfig(loss="mse", optimizer="sgd", batch_size=8)


def batches(count: int) -> list[np.ndarray]:
    rng = np.random.default_rng(1)
    return [rng.normal(size=(8, 9, 9, 3)).astype(np.float32) for _ in range(count)]


@pytest.mark.parametrize("make", [ct.InferenceSession, lambda m: ct.TrainSession(m, CONFIG).predict])
def test_threads_that_share_a_session_get_their_own_results(make: object) -> None:
    model, xs = networks.cnn(), batches(4)
    expected = [ct.InferenceSession(model)(x) for x in xs]
    infer = make(model)  # type: ignore[operator]
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda i: infer(xs[i % 4]), range(80)))
    for i, outputs in enumerate(found):
        np.testing.assert_array_equal(outputs, expected[i % 4])


class Meanwhile(ct.callbacks.Callback):
    """At the end of a batch another thread tries something with the session."""

    def __init__(self, attempt: object) -> None:
        self.attempt, self.found = attempt, []

    def on_batch_end(self, batch: int, logs: object = None) -> None:
        thread = threading.Thread(target=lambda: self.found.append(self._outcome()))
        thread.start()
        thread.join(30)
        assert not thread.is_alive()

    def _outcome(self) -> object:
        try:
            return self.attempt()  # type: ignore[operator]
        except ct.ConfigError as error:
            return error


def fitted(attempt: object) -> list:
    session = ct.TrainSession(networks.cnn(), CONFIG)
    x, y = batches(1)[0], np.zeros((8, 5), np.float32)
    meanwhile = Meanwhile(lambda: attempt(session, x, y))  # type: ignore[operator]
    session.fit(x, y, epochs=2, callbacks=[meanwhile], verbose=0)
    alone = ct.TrainSession(networks.cnn(), CONFIG)
    alone.fit(x, y, epochs=2, verbose=0)
    for name, value in alone.parameters.items():
        np.testing.assert_array_equal(session.parameters[name], value)
    return meanwhile.found


@pytest.mark.parametrize(
    "attempt",
    [
        lambda session, x, y: session.train_step(x, y),
        lambda session, x, y: session.fit(x, y, verbose=0),
        lambda session, x, y: session.update(),
        lambda session, x, y: session.reset_gradients(),
    ],
)
def test_training_beside_training_is_refused_and_changes_nothing(attempt: object) -> None:
    found = fitted(attempt)
    assert len(found) == 2
    assert all("another thread is training this session" in str(error) for error in found)


def test_inference_beside_training_gets_its_turn() -> None:
    found = fitted(lambda session, x, y: session.predict(x))
    assert [outputs.shape for outputs in found] == [(8, 5)] * 2


@pytest.mark.parametrize("copying", [pickle.dumps, copy.copy, copy.deepcopy])
@pytest.mark.parametrize("make", [ct.InferenceSession, lambda model: ct.TrainSession(model, CONFIG)])
def test_a_session_is_neither_copied_nor_pickled(make: object, copying: object) -> None:
    """Two faces of one memory, or half of one in another process, would be worse than a sentence."""
    with pytest.raises(ct.ConfigError, match="save a checkpoint or export the model"):
        copying(make(networks.cnn()))  # type: ignore[operator]
