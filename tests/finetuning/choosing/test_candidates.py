"""What may be trained: layers with a share of their channels among it, their bytes and their information."""

from __future__ import annotations

import numpy as np
import pytest
from picture_net import picture_net

import circle_train as ct
from circle_train.finetuning.choosing import contest as module
from circle_train.finetuning.choosing.budget import Budget
from circle_train.finetuning.choosing.candidates import Candidate, candidates, narrowed
from circle_train.finetuning.choosing.contest import Contest
from circle_train.finetuning.choosing.facts import Facts
from circle_train.finetuning.choosing.knapsack import propose
from circle_train.finetuning.choosing.layers import Layer
from circle_train.finetuning.choosing.task import task_of


def test_a_share_of_the_channels_counts_as_such() -> None:
    """Candidates of a deep network; their bytes and information; a layer without channels learns its bias."""
    layers = [
        Layer(place, "CONV_2D", (f"w{place}",), (f"b{place}",), (), 100, 4000, has_channels=place != 5)
        for place in range(8)
    ]
    sets = propose(layers, {place: 9.0 - place for place in range(8)}, 12_000)
    found = {one.what: one for one in candidates(layers, (), sets)}
    picked = found["picked, a quarter of their channels: operators 0, 1, 2, 3, 4, 5"].names
    assert picked[0] == "w0[:0.25]" and picked[-2:] == ("w5", "b5")  # which has none
    assert layers[0].nbytes == 4 * layers[0].part(0.25).nbytes
    half, quarter = narrowed(found["last 4 layers"], layers)
    assert quarter.what == "last 4 layers, a quarter of their channels"
    assert quarter.names == ("w4[:0.25]", "b4", "b5", "w6[:0.25]", "b6", "w7", "b7")
    assert half.names[0] == "w4[:0.5]"
    assert not list(narrowed(found["biases"], layers)) and not list(narrowed(found["last layer"], layers))
    for room in (None, 10**9):
        assert not any(
            one.share < 1 for chosen in propose(layers, dict.fromkeys(range(8), 1.0), room) for one in chosen
        )


def test_what_has_no_room_is_tried_with_the_channels_that_have(monkeypatch: pytest.MonkeyPatch) -> None:
    """With a quarter where half is too much, too; and with all where these have room."""

    def facts(task: object, candidate: Candidate) -> Facts:
        is_dear = candidate.what.startswith("everything") and "quarter" not in candidate.what
        return Facts(refused="too much" if is_dear else "")

    monkeypatch.setattr(module, "facts_of", facts)
    found = contest().facts
    assert [one.what for one in found if "channels" in one.what] == [
        "everything, a quarter of their channels"
    ]
    assert next(facts for one, facts in found.items() if one.what == "everything").refused


def contest() -> Contest:
    """Of eight pictures."""
    config = ct.TrainConfig(loss="sparse_categorical_crossentropy", batch_size=2)
    x, y = np.random.default_rng(0).random((8, 32, 32, 3), np.float32), np.arange(8, dtype=np.int32)
    return Contest(task_of(picture_net(), (x, y), config, None, 0, 1), Budget())


def test_a_share_of_the_channels_is_that_share_of_the_information() -> None:
    found = contest()
    kernel = next(one.weights[0] for one in found.body if one.has_channels)
    whole, half = (found._foreseen(Candidate("", (name,), ())) for name in (kernel, f"{kernel}[:0.5]"))
    assert 0 < half == pytest.approx(whole / 2)
