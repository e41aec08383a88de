"""The second phase of a fine-tuning: layers that have something to learn, at a rate that rises, falls and comes back."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from networks import finish, make, mlp, new_input, weight
from picture_net import picture_net

import circle_train as ct
from circle_train.finetuning.deeper import DEEPER_LENGTH, SLOWER, Settled, all_layers
from circle_train.fitting.callback import Callback
from circle_train.ir import Graph

SHAPES = Path(__file__).parents[1] / "data" / "shapes"


class Watch(Callback):
    """The rate of each epoch, and what is trained in it."""

    def __init__(self) -> None:
        self.seen: list[tuple[float, int]] = []

    def on_epoch_begin(self, epoch: int) -> None:
        self.seen.append((self.session.learning_rate, len(self.session.parameters.flat(trainable_only=True))))


def test_every_layer_is_among_them() -> None:
    assert all_layers(mlp()) == ("last", 3)
    assert all_layers(picture_net()) == ("last", 7)


def test_few_samples_are_shown_more_often() -> None:
    assert [DEEPER_LENGTH.epochs(samples, 16) for samples in (60, 1600, 100_000)] == [20, 6, 3]


def test_a_model_of_one_layer_has_no_second_phase() -> None:
    graph = Graph("one", [new_input("x", 1, 6)])
    model = finish(
        graph, graph.emit(make("FULLY_CONNECTED"), graph.inputs[0], weight("w", 4, 6), weight("b", 4))
    )
    assert all_layers(model) is None


def test_the_rate_rises_and_falls_and_is_there_again() -> None:
    pytest.importorskip("PIL")
    data, watch = ct.data.images(SHAPES, validation=0.25), Watch()
    result = ct.finetune(
        picture_net(), data, epochs=4, learning_rate=1e-4, callbacks=(watch,), verbose=0, patience=9, seed=1
    )
    head, deeper = watch.seen[:4], watch.seen[4:]
    assert [rate for rate, _ in head] == pytest.approx([1e-4] * 4)
    rate = 1e-4 / SLOWER
    factors = [1, 0.5 + 0.5**1.5, 0.5, 0.5 - 0.5**1.5]  # ½(1 + cos(π·epoch/4)), one step an epoch
    assert [rate for rate, _ in deeper] == pytest.approx([rate * factor for factor in factors])
    assert {count for _, count in head} == {66} and {count for _, count in deeper} == {
        66 + 32 * (16 * 9 + 1) + 16 * (3 * 9 + 1)
    }
    assert result.phases == ("head",) or result.session.learning_rate == pytest.approx(rate)


def test_the_last_of_weights_that_are_nearly_as_good_stay() -> None:
    ending = Settled(patience=2)
    ending.on_train_begin()
    losses = [0.8, 0.5, 0.54, 0.51, 0.56, float("nan"), 0.4, 0.45]
    assert [ending.improves(loss) for loss in losses] == [True, True, True, True, False, False, True, False]
    assert ending.best == 0.4


@pytest.mark.parametrize("asked, heads, laters", [(None, {0, 1}, {0.05, 0.95}), (0.0, {0, 1}, {0, 1})])
def test_labels_are_not_learned_by_heart(
    monkeypatch: pytest.MonkeyPatch, asked: float | None, heads: set[float], laters: set[float]
) -> None:
    pytest.importorskip("PIL")
    seen, fit = [], ct.TrainSession.fit

    def watched(self: ct.TrainSession, data: Any, **options: Any) -> Any:
        seen.append({round(float(share), 6) for share in np.unique(data.targets[0])})
        assert set(np.unique(options["validation_data"].targets[0])) == {0, 1}
        return fit(self, data, **options)

    monkeypatch.setattr(ct.TrainSession, "fit", watched)
    data = ct.data.images(SHAPES, validation=0.25)
    ct.finetune(picture_net(), data, epochs=1, trainable="last:3", label_smoothing=asked, verbose=0)
    assert seen == [heads, laters]
