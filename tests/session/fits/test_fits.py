"""What a fit counts: samples, batches, epochs."""

from __future__ import annotations

import numpy as np
import pytest
from networks import mlp
from test_session import batch, session

import circle_train as ct


def test_the_last_partial_batch_has_its_true_weight() -> None:
    """Ten samples in batches of eight and two, full-batch weights by hand."""
    x, y = batch(10)
    trained, by_hand = session(mlp()), session(mlp())
    history = trained.fit(x, y, epochs=1, shuffle=False, verbose=0)
    losses = [by_hand.train_step(x[:8], y[:8]).loss, by_hand.train_step(x[8:], y[8:]).loss]
    np.testing.assert_array_equal(trained.parameters.flat(), by_hand.parameters.flat())
    assert history.history["loss"] == pytest.approx([0.8 * losses[0] + 0.2 * losses[1]])


def test_metrics_of_an_epoch_count_every_sample() -> None:
    x, y = batch(21)
    trained = session(
        mlp(), metrics=["categorical_accuracy"], optimizer=ct.optimizers.SGD(learning_rate=1e-9)
    )
    history = trained.fit(x, y, epochs=1, validation_data=(x[:13], y[:13]), verbose=0)
    hits = trained.predict(x).argmax(1) == y.argmax(1)
    assert history.history["categorical_accuracy"] == pytest.approx([hits.mean()])
    assert history.history["val_categorical_accuracy"] == pytest.approx([hits[:13].mean()])


def test_validation_split_counts_exactly() -> None:
    x, y = batch(20)
    seen: list[int] = []
    probe = ct.callbacks.LambdaCallback(on_batch_end=lambda number, logs: seen.append(number))
    history = session(mlp(), batch_size=4).fit(
        x, y, epochs=1, validation_split=0.2, callbacks=[probe], verbose=0
    )
    assert len(seen) == 4
    assert len(history.history["val_loss"]) == 1


def test_shuffling_is_seeded() -> None:
    x, y = batch(32)
    runs = []
    for seed in (1, 1, 2):
        trained = ct.TrainSession(mlp(), ct.TrainConfig(batch_size=8), seed=seed, backend="reference")
        trained.fit(x, y, epochs=2, verbose=0)
        runs.append(trained.parameters.flat())
    np.testing.assert_array_equal(runs[0], runs[1])
    assert not np.array_equal(runs[0], runs[2])


def test_early_stopping_ends_the_fit() -> None:
    x, y = batch(16)
    stop = ct.callbacks.EarlyStopping(monitor="loss", patience=1, min_delta=1e9)
    assert len(session(mlp()).fit(x, y, epochs=50, callbacks=[stop], verbose=0).history["loss"]) < 5


class Counted:
    """A metric of somebody's own that counts the batches it is shown."""

    name = "counted"
    shown = 0

    def reset(self) -> None:
        pass

    def update(self, output: object, target: object) -> None:
        Counted.shown += 1

    def result(self) -> float:
        return float(Counted.shown)


def test_fit_and_evaluate_measure_a_batch_once() -> None:
    x, y = batch(8)
    trained = session(mlp(), batch_size=4, metrics=[Counted()])
    Counted.shown = 0
    trained.fit(x, y, epochs=3, verbose=0)
    assert Counted.shown == 6
    assert trained.evaluate(x, y)["counted"] == 8
    assert trained.train_step(x[:4], y[:4]).metrics["counted"] == 9
    assert trained.eval_step(x[:4], y[:4], measure=False).metrics == {}
