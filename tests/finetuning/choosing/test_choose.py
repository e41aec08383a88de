"""What to train is chosen: within the budget, the same for the same seed, and what a shift of the input asks for."""

from __future__ import annotations

import json
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from picture_net import picture_net

import circle_train as ct
from circle_train.cli.main import main
from circle_train.finetuning.choosing.choice import Choice
from circle_train.finetuning.choosing.splits import Split
from circle_train.finetuning.choosing.task import task_of
from circle_train.finetuning.choosing.trial import Bench, attempt
from circle_train.finetuning.deadline import Deadline
from circle_train.runtime.executor import Executor

SHAPES = Path(__file__).parents[2] / "data" / "shapes"
MLP = "tests/data/mlp.circle"


def samples(count: int = 48) -> tuple[Any, Any]:
    """Classes that a line tells apart."""
    random = np.random.default_rng(0)
    x = random.normal(size=(count, 6)).astype(np.float32)
    return x, (x @ random.normal(size=(6, 5))).argmax(1).astype(np.int32)


@pytest.fixture(scope="module")
def choice() -> Choice:
    return ct.choose(MLP, samples(), config=ct.TrainConfig(loss="sparse_categorical_crossentropy", epochs=16))


def test_what_is_chosen_is_better_than_before(choice: Choice) -> None:
    assert choice.chosen.seen is not None and choice.chosen.seen > 0.1
    assert choice.config.trainable == choice.chosen.names and choice.config.epochs == 16
    x, y = samples()
    session = ct.TrainSession(choice.model, choice.config.replace(metrics=["sparse_categorical_accuracy"]))
    before = session.evaluate(x, y)["sparse_categorical_accuracy"]
    session.fit(x, y, verbose=0)
    assert session.evaluate(x, y)["sparse_categorical_accuracy"] > before + 0.1


def test_the_table_names_all_and_can_be_overruled(choice: Choice) -> None:
    text = str(choice)
    assert all(row.what in text for row in choice.rows)
    assert choice.reason in text and choice.chosen.what in choice.reason
    other = choice.rows[-1]
    assert choice.of(other.what).trainable == other.names
    assert choice.of(other.what).rule.base_learning_rate == other.learning_rate
    with pytest.raises(ct.ConfigError, match=r"'lst layer' was no candidate, expected one of .*last layer"):
        choice.of("lst layer")


def test_the_same_seed_chooses_the_same() -> None:
    """And what is trained of it are the same bits, on any number of threads, a new head's too."""
    x, y = samples(24)
    headed = ct.load(MLP).with_head(5)

    def once(threads: int) -> tuple[Any, ...]:
        config = ct.TrainConfig(loss="sparse_categorical_crossentropy", epochs=2)
        found = ct.choose(headed, (x, y), seed=3, config=config, threads=threads)
        session = ct.TrainSession(found.model, found.config, seed=3, threads=threads)
        session.fit(x, y, verbose=0)
        rows = [(row.what, row.learning_rate, row.skill, row.seen, row.foreseen) for row in found.rows]
        return rows, session.parameters.flat(trainable_only=False).tobytes()

    assert once(1) == once(2)


def test_trials_share_what_a_frozen_beginning_gives(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is computed once for a sample in a session, whatever the rates and splits, and decides as without."""
    samples_of = {"seen": 0}
    run = Executor.run_beginning

    def counted(self: Executor, feeds: Any) -> None:
        samples_of["seen"] += self.program.batch_size
        run(self, feeds)

    random = np.random.default_rng(1)
    x, y = random.normal(size=(16, 32, 32, 3)).astype(np.float32), np.arange(16, dtype=np.int32) % 10
    config = ct.TrainConfig(loss="sparse_categorical_crossentropy", batch_size=4, epochs=2)
    task = task_of(picture_net(), (x, y), config, None, 0, 1)
    last = tuple(p.name for p in task.session(("last", 2), 1e-3, {}).program.trained)
    monkeypatch.setattr(Executor, "run_beginning", counted)
    halves = [Split(np.arange(8), np.arange(8, 16)), Split(np.arange(8, 16), np.arange(8))]
    bench = Bench(task)
    shared = [attempt(bench, last, rate, {}, half, 2)[0].score for rate in (1e-3, 1e-2) for half in halves]
    assert last and bench.kept is not None and samples_of["seen"] == 16
    monkeypatch.setattr("circle_train.finetuning.choosing.trial.with_results", lambda *_: None)
    plain = Bench(task)
    alone = [attempt(plain, last, rate, {}, half, 2)[0].score for rate in (1e-3, 1e-2) for half in halves]
    assert shared == alone


def test_what_is_chosen_leaves_room_for_the_best_weights() -> None:
    """finetune gives the best epoch's weights back: a budget that a step fits only without them is no budget for it."""
    head = ct.load(MLP)
    x, y = samples(16)
    config = ct.TrainConfig(loss="sparse_categorical_crossentropy", batch_size=4, epochs=2)
    whole = ct.TrainSession(head, config).plan
    found = ct.choose(head, (x, y), memory=whole.budget_bytes + 10, config=config)
    session = ct.TrainSession(found.model, found.config)
    best = ct.callbacks.EarlyStopping("loss", restore_best=True)
    session.fit(x, y, callbacks=best, verbose=0)
    assert session.plan.budget_bytes <= whole.budget_bytes + 10


def test_nothing_takes_more_than_the_memory() -> None:
    plan = ct.TrainSession(picture_net(), ct.TrainConfig(loss="mse", batch_size=4)).plan
    memory = plan.budget_bytes - plan.total_bytes // 5
    random = np.random.default_rng(1)
    x, y = random.normal(size=(16, 32, 32, 3)).astype(np.float32), np.arange(16, dtype=np.int32) % 10
    config = ct.TrainConfig(loss="sparse_categorical_crossentropy", batch_size=4, epochs=2)
    found = ct.choose(picture_net(), (x, y), memory=memory, config=config)
    assert all(row.nbytes <= memory for row in found.rows)
    assert ct.TrainSession(found.model, found.config).plan.budget_bytes <= memory
    with pytest.raises(ct.ConfigError, match=r"nothing can be trained within the budget: .* a step needs"):
        ct.choose(picture_net(), (x, y), memory="1kB", config=config)


def test_what_takes_too_long_is_not_tried() -> None:
    config = ct.TrainConfig(loss="sparse_categorical_crossentropy", epochs=100_000)
    with pytest.raises(ct.ConfigError, match="training takes about"):
        ct.choose(MLP, samples(24), seconds=0.01, config=config)


def test_few_samples_decide_nothing_and_that_is_said() -> None:
    x, y = samples(8)
    config = ct.TrainConfig(loss="sparse_categorical_crossentropy", epochs=1)
    assert "too few to decide anything" in ct.choose(MLP, (x, y), config=config).reason
    with pytest.raises(ct.DataError, match="there are 7 samples to train on, expected at least 8"):
        ct.choose(MLP, (x[:7], y[:7]), config=config)


def test_values_are_judged_by_their_loss() -> None:
    x, _ = samples(24)
    found = ct.choose(MLP, (x, np.zeros((24, 5), np.float32)), config=ct.TrainConfig(loss="mse", epochs=4))
    assert found.before < 0 and "loss" in found.reason


def test_streams_cannot_be_split() -> None:
    x, y = samples(8)
    with pytest.raises(ct.DataError, match="data is a stream of batches"):
        ct.choose(MLP, [(x, y)], config=ct.TrainConfig(loss="sparse_categorical_crossentropy"))


def test_a_course_within_a_budget_says_what_it_trained(tmp_path: Path) -> None:
    data = replace(ct.data.images(SHAPES, validation=0.25))
    result = ct.finetune(picture_net(), data, budget="40MB,20s", epochs=2, learning_rate=1e-5, verbose=0)
    assert result.choice is not None and result.choice.reason in str(result)
    assert result.session.plan.total_bytes <= 40_000_000
    result.report(tmp_path / "report.html")
    assert "What to train" in (tmp_path / "report.html").read_text(encoding="utf-8")


def test_a_budget_is_said_once() -> None:
    with pytest.raises(ct.ConfigError, match="budget and memory_budget are both given"):
        ct.finetune(picture_net(), ct.data.images(SHAPES), budget="40MB", memory_budget="40MB")


def test_a_phase_ends_before_its_time_is_over() -> None:
    session = ct.TrainSession(MLP, ct.TrainConfig(loss="sparse_categorical_crossentropy"))
    history = session.fit(*samples(), epochs=5, callbacks=[Deadline(time.process_time())], verbose=0)
    assert len(history.epoch) == 1


def test_check_tries_out(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["check", str(SHAPES), "--model", "tests/data/mnist.circle", "--budget", "50MB,1s", "--json"]
    assert main(words) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["rows"][0]["what"] in found["reason"]
    assert main(["check", MLP, "--budget", "5s"]) == 1
    assert "--budget wants samples" in capsys.readouterr().err
