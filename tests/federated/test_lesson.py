"""A client's lesson takes a fit's steps."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import circle_train as ct
from circle_train.data.dataset import Dataset
from circle_train.errors import ConfigError

pytest.importorskip("flwr")

from circle_train import federated
from circle_train.federated.client import learner as learner_module
from circle_train.federated.client.learner import Learner
from circle_train.federated.client.lesson import is_ready, learn
from circle_train.federated.client.session import ClientSession
from circle_train.federated.client.settings import How
from circle_train.federated.records import record_of

MODEL = Path(__file__).resolve().parents[1] / "data/mnist.circle"


def session_for(**settings: Any) -> ClientSession:
    config = {
        "loss": "sparse_categorical_crossentropy",
        "optimizer": ct.optimizers.Adam(learning_rate=ct.schedules.Cosine(0.01, 20)),
        "batch_size": 4,
        "metrics": ["sparse_categorical_accuracy"],
    }
    return ClientSession(MODEL, ct.TrainConfig(**{**config, **settings}))


def pictures(count: int = 11) -> Dataset:
    random = np.random.default_rng(0)
    x = random.random((count, 28, 28, 1), dtype=np.float32)
    return Dataset([x], [random.integers(0, 10, count).astype(np.int32)])


def begun(session: ClientSession) -> ClientSession:
    session.begin(3, None, 0.0)
    return session


@pytest.mark.parametrize("shuffle", [True, False])
def test_a_lesson_gives_the_bits_of_a_fit(shuffle: bool) -> None:
    one, other, data = session_for(), session_for(), pictures()
    history = begun(one).fit(data, epochs=3, shuffle=shuffle, verbose=0)
    other.train_step(data.inputs[0][:4], data.targets[0][:4])
    other.parameters.update(session_for().parameters)
    assert is_ready(data, begun(other))
    logs = learn(other, data, 3, shuffle)
    for name, array in one.parameters.items():
        np.testing.assert_array_equal(array, other.parameters[name])
    assert logs.keys() == history.history.keys()
    for name, value in logs.items():
        assert value == pytest.approx(history.history[name][-1], rel=1e-6)
    assert (one.state.step, one.state.epochs_begun) == (other.state.step, other.state.epochs_begun)


def two_rounds(monkeypatch: pytest.MonkeyPatch, alone: bool) -> tuple[Any, list[bool]]:
    """Of the last layer, by lessons where they may be; what came of it, and which rounds were one."""
    data, ready, real = pictures(), [], learner_module.is_ready
    config = session_for().config.replace(trainable=("last", 2))
    learner = Learner(MODEL, config, lambda context: (data.inputs[0], data.targets[0]), How(epochs=2))

    def judge(given: Any, session: ClientSession) -> bool:
        ready.append(alone and real(given, session))
        return ready[-1]

    monkeypatch.setattr(learner_module, "is_ready", judge)
    context = SimpleNamespace(node_config={"partition-id": 0}, node_id=2, run_config={}, state={})
    record = federated.arrays(learner.session)
    for number in (1, 2):
        made = learner.train(context, record, {"server-round": number})
        record = record_of(made.arrays)
    monkeypatch.undo()
    return made, ready


def test_a_lesson_on_kept_results_gives_the_bits_of_a_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    """The second round finds what the frozen layers made of the samples in the first."""
    one, ready = two_rounds(monkeypatch, True)
    other, _ = two_rounds(monkeypatch, False)
    assert ready == [False, True]
    assert one.metrics == pytest.approx(other.metrics, rel=1e-6)
    for name, array in one.arrays.items():
        np.testing.assert_array_equal(array, other.arrays[name])


def test_data_that_a_fit_would_look_at_are_left_to_it() -> None:
    session, data = session_for(), pictures()
    assert not is_ready(data, session)  # nobody has looked at its outputs yet
    session.train_step(data.inputs[0][:4], data.targets[0][:4])
    assert is_ready(data, session)
    spoiled = data.inputs[0].copy()
    spoiled[5, 3] = np.nan
    assert not is_ready(Dataset([spoiled], data.targets), session)
    assert not is_ready(Dataset([data.inputs[0].astype(np.float64)], data.targets), session)
    assert not is_ready(Dataset([data.inputs[0].reshape(11, 784)], data.targets), session)
    session.begin(0, None, 0.1)
    assert not is_ready(data, session)


def test_a_loss_that_is_no_number_is_refused_as_by_a_fit() -> None:
    session, data = session_for(optimizer=ct.optimizers.SGD(learning_rate=1e30)), pictures()
    session.is_known = True
    with pytest.raises(ConfigError, match=r"step 2: the loss is nan; .*lower the learning rate"):
        learn(begun(session), data, 1, False)
