"""What a choice is made of: information, knapsacks, splits, halving, budgets."""

from __future__ import annotations

from itertools import combinations
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from picture_net import picture_net

import circle_train as ct
from circle_train.finetuning.choosing.budget import Budget, parse_budget
from circle_train.finetuning.choosing.candidates import Candidate, candidates
from circle_train.finetuning.choosing.contest import Contest
from circle_train.finetuning.choosing.facts import Facts
from circle_train.finetuning.choosing.fisher import information
from circle_train.finetuning.choosing.halving import QUICK, Arm, chosen_of, compete
from circle_train.finetuning.choosing.knapsack import knapsack
from circle_train.finetuning.choosing.layers import Layer
from circle_train.finetuning.choosing.schedule import (
    FEWEST_SAMPLES,
    MOST_SAMPLES,
    Schedule,
    _schedules,
    _takes,
)
from circle_train.finetuning.choosing.splits import splits
from circle_train.finetuning.choosing.task import task_of
from circle_train.finetuning.choosing.trial import Scheduled, Score, Trial, falling, score_of


def layer(place: int, elements: int) -> Layer:
    return Layer(place, "CONV_2D", (f"w{place}",), (f"b{place}",), (), elements, 0)


def picture_task(count: int, memory: int | None = None) -> Any:
    random = np.random.default_rng(0)
    x = random.normal(size=(count, 32, 32, 3)).astype(np.float32)
    config = ct.TrainConfig(loss="sparse_categorical_crossentropy", batch_size=2)
    return task_of(picture_net(), (x, np.arange(count, dtype=np.int32)), config, memory, 0, 1)


def test_information_is_that_of_channels_turned_up_and_down() -> None:
    """Σ_d a·g of a channel is the loss's derivative by a factor on the channel: by finite differences of the loss."""
    task = picture_task(8)
    layers = Contest(task, Budget()).layers
    found = information(task, layers, {})
    first = layers[0]
    session = task.session("all", 1.0, {})
    weights, bias = (np.array(session.parameters[name]) for name in first.names)
    step, total = 1e-2, 0.0
    for sample in range(8):
        x, y = task.data.take(np.array([sample]))
        for channel in range(len(bias)):
            losses = []
            for factor in (1 + step, 1 - step):
                scale = np.ones(len(bias), np.float32)
                scale[channel] = factor
                session.parameters[first.weights[0]] = weights * scale[:, None, None, None]
                session.parameters[first.biases[0]] = bias * scale
                losses.append(session.eval_step(x, y).loss)
            total += ((losses[0] - losses[1]) / (2 * step)) ** 2 / 2 / 8
    assert found[first.place] == pytest.approx(total, rel=0.02)


def test_information_within_a_budget_is_the_same() -> None:
    """Layers that do not fit together are looked at in parts."""
    layers = Contest(picture_task(8), Budget()).layers
    whole = information(picture_task(8), layers, {})
    needed = ct.TrainSession(picture_net(), picture_task(8).config.replace(batch_size=1)).plan.budget_bytes
    parts = information(picture_task(8, needed - 10_000), layers, {})
    assert parts == pytest.approx(whole, rel=1e-4)


@settings(max_examples=30, deadline=None)
@given(
    st.lists(st.tuples(st.integers(1, 30), st.integers(0, 20)), min_size=1, max_size=7), st.integers(10, 80)
)
def test_a_knapsack_holds_the_most_that_fits(items: list[tuple[int, int]], percent: int) -> None:
    layers = [layer(place, 100 * weight) for place, (weight, _) in enumerate(items)]
    values = {place: float(value) for place, (_, value) in enumerate(items)}
    room = percent * sum(one.nbytes for one in layers) // 100
    chosen = knapsack(layers, values, room)
    assert sum(one.nbytes for one in chosen) <= room
    tight = 0.97 * room  # bytes are rounded up to bins
    best = max(
        sum(values[one.place] for one in some)
        for count in range(len(layers) + 1)
        for some in combinations(layers, count)
        if sum(one.nbytes for one in some) <= tight
    )
    assert sum(values[one.place] for one in chosen) >= best


def test_splits_hold_out_every_sample_once_and_each_class_alike() -> None:
    labels = np.arange(40) % 4
    found = splits(40, labels, None, [40] * 8, 0)
    for four in (found[:4], found[4:]):
        assert sorted(np.concatenate([split.held_out for split in four])) == list(range(40))
        assert all(np.ptp(np.bincount(labels[split.held_out])) <= 1 for split in four)
        assert all(not set(split.train) & set(split.held_out) for split in four)
    assert any(list(a.held_out) != list(b.held_out) for a, b in zip(found[:4], found[4:], strict=True))


def test_splits_of_some_samples_and_of_groups() -> None:
    labels = np.arange(100) % 4
    some = splits(100, labels, None, [40] * 4, 0)
    assert {len(split.train) + len(split.held_out) for split in some} == {40}
    growing = splits(100, labels, None, [20, 40, 100, 100], 0)
    assert [len(split.train) + len(split.held_out) for split in growing] == [20, 40, 100, 100]
    assert not set(growing[2].held_out) & set(growing[3].held_out)
    groups = np.arange(100) // 10
    for split in splits(100, labels, groups, [60, *[100] * 4], 0):
        assert not set(groups[split.train]) & set(groups[split.held_out])
    assert len(splits(100, labels, groups, [60], 0)[0].train) < 60
    assert len(splits(100, labels, np.zeros(100), [100] * 4, 0)) == 4


def arm(what: str, parameters: int, *skills: float) -> Arm:
    trials = [Trial(Score(skill, skill), 10, 0.0, 0.0) for skill in skills]
    return Arm(Candidate(what, (what,), (1.0,)), 1.0, Facts(parameters), trials)


def test_the_best_are_tried_most() -> None:
    arms = [arm(str(number), number) for number in range(12)]

    def attempt(one: Arm, split: int) -> Trial:
        return Trial(Score(one.facts.parameters / 12, 0.0), 10, 0.0, 0.0)

    left = compete(arms, attempt, ((1, 1 / 2), (2, 1 / 3), (4, 0.0)))
    assert left[0].facts.parameters == 11
    assert sorted(len(one.trials) for one in arms) == [1] * 6 + [2] * 3 + [4] * 3


def test_of_equals_the_smallest_is_taken_and_doubt_is_named() -> None:
    best = [
        arm("all", 100, 0.91, 0.70, 0.90),
        arm("first", 5, 0.90, 0.72, 0.88),
        arm("last", 2, 0.5, 0.5, 0.5),
    ]
    chosen, doubtful = chosen_of(best)
    assert chosen.candidate.what == "first"
    assert [one.candidate.what for one in doubtful] == ["all"]
    assert chosen_of(best, usual=best[0])[0] is best[0]
    assert chosen_of(best, usual=best[2])[0].candidate.what == "first"
    for skill, what in (
        (0.1, "first"),
        (0.85, "all"),
    ):  # where training shows a gain the fewest parameters are enough
        before = [Score(skill, skill)] * 3
        assert chosen_of(best, best[0], before)[0].candidate.what == what


def test_what_is_usual_is_tried_to_the_end_and_taken_at_the_middle_of_rates_that_are_as_good() -> None:
    skills = {("usual", 1e-4): 0.80, ("usual", 1e-3): 0.70, ("usual", 1e-2): 0.81, ("small", 1e-3): 0.815}
    sets = {name: Candidate(name, (name,), ()) for name in ("usual", "small", "bad")}
    arms = [Arm(sets[name], rate, Facts(parameters=9)) for name, rate in skills]
    arms += [Arm(sets["bad"], 1e-3, Facts(parameters=1)) for _ in range(3)]

    def attempt(arm: Arm, split: int) -> Trial:
        noise = 0.1 * (-1) ** split * (arm.candidate.what == "usual")
        return Trial(Score(skills.get((arm.candidate.what, arm.rate), 0.2) + noise, 0.0), 10, 0.0, 0.0)

    usual = arms[1]
    finalists = compete(arms, attempt, ((2, 1 / 2), (4, 1 / 2), (8, 0.0)), usual)
    assert usual in finalists and len(usual.trials) == 8
    chosen, _ = chosen_of(finalists, usual)
    assert (chosen.candidate, chosen.rate) == (usual.candidate, 1e-2)


def test_scores_of_logits_and_probabilities_agree() -> None:
    logits = np.log(np.array([[0.5, 0.25, 0.25], [0.1, 0.1, 0.8]])) + 7
    truth = np.array([0, 1])
    one, other = score_of(logits, truth), score_of(np.exp(logits - 7), truth)
    assert one.skill == pytest.approx(other.skill) == pytest.approx(1 - (0.375 + 1.46) / 4)
    assert one.right == 0.5


def test_what_is_foreseen_of_a_candidate_is_its_share_of_every_layer() -> None:
    """All of a layer has all of its information, one of its two parameters a half, whatever the others hold."""
    contest = Contest(picture_task(8), Budget())
    first, second = [layer for layer in contest.body if len(layer.names) == 2][:2]
    contest.information = {first.place: 3.0, second.place: 1.0}
    for names, share in (
        (first.names, 0.75),
        (first.names[:1], 0.375),
        ((*first.names, *second.names), 1.0),
        ((), 0.0),
    ):
        assert contest._foreseen(Candidate("some", names, (1e-3,))) == pytest.approx(share)


def test_a_new_head_is_trained_with_every_candidate() -> None:
    body, head = [layer(0, 100), layer(1, 100)], layer(2, 10)
    found = candidates([*body, head], head.names, [[body[0]]])
    assert all(set(head.names) <= set(candidate.names) for candidate in found)
    assert found[0].names == head.names
    assert len({frozenset(candidate.names) for candidate in found}) == len(found)


def test_budgets_are_read() -> None:
    assert parse_budget("150MB,60s") == parse_budget("1min, 150 MB") == Budget(150_000_000, 60.0)
    assert parse_budget("90s") == Budget(None, 90.0)
    assert parse_budget("64MiB") == Budget(64 << 20, None)


@pytest.mark.parametrize("text", ["", "150", "60s,30s", "1MB,2MB", "150MB,60", "0s", "-3s", 150, None])
def test_other_budgets_are_refused(text: Any) -> None:
    with pytest.raises(ct.ConfigError, match="budget is"):
        parse_budget(text)


def test_a_course_is_foreseen_with_what_a_new_session_takes() -> None:
    """Two seconds to make it and one more of its first epoch; 0.1 s a sample in the first epoch, then 0.01 s."""
    score = Score(0.5, 0.5)
    arm = Arm(Candidate("last layer", ("w",), (0.1,)), 0.1, Facts(making=99.0))
    arm.trials = [Trial(score, 50, 0.12, 0.01, 2.0), Trial(score, 50, 0.1, 0.01), Trial(score, 50, 0.1, 0.01)]
    assert arm.seconds(100, 5) == pytest.approx(3.0 + 100 * (0.1 + 4 * 0.01))
    arm.trials = arm.trials[1:]
    assert arm.seconds(100, 5) == pytest.approx(99.0 + 100 * (0.1 + 4 * 0.01))


def test_a_candidate_foresees_the_share_of_each_layer_that_it_trains() -> None:
    """Two of three parameters of a layer have two thirds of what is known of it."""
    contest = Contest.__new__(Contest)
    layers = [Layer(0, "CONV_2D", ("a", "b", "c"), (), (), 1, 0), layer(1, 1), layer(2, 1)]
    vars(contest).update(information={0: 3.0, 1: 5.0}, body=layers)
    assert contest._foreseen(Candidate("some", ("a", "c", "w1", "w2"), ())) == pytest.approx((2 + 2.5) / 8)


@pytest.mark.parametrize("samples", [50, 170, 5000])
def test_trials_learn_from_all_samples_or_from_enough(samples: int) -> None:
    counts = {schedule.samples for schedule in _schedules(samples, 8)}
    assert max(counts) == min(samples, MOST_SAMPLES)
    assert all(count == max(counts) or count >= FEWEST_SAMPLES for count in counts)


@pytest.mark.parametrize(("rates", "beginnings"), [(1, 1 + 1 / 3 + 1 / 9), (3, 1 + 1 + 1 / 3), (9, 3)])
def test_a_beginning_is_computed_once_a_round_for_the_rates_that_are_left(
    rates: int, beginnings: float
) -> None:
    plan = Schedule(100, 1, 1, rates, QUICK)
    assert _takes(plan, [Facts(first=1.0)]) == pytest.approx(100 * beginnings)


def test_where_samples_grow_the_first_round_has_a_fourth_of_them() -> None:
    """Twelve arms: all on a hundred samples, a third on two hundred, a ninth twice on four hundred."""
    plan = Schedule(400, 1, 1, 3, QUICK, grows=True)
    assert plan.sizes == (100, 200, 400, 400) and "4 splits of 100 to 400 samples" in str(plan)
    assert _takes(plan, [Facts(first=1.0, later=1.0)] * 4) == pytest.approx(12 * (100 + 200 / 3 + 800 / 9))


def test_what_is_chosen_is_trained_at_rates_as_the_trials_had_them() -> None:
    rates: list[float] = []

    class Seen(ct.callbacks.Callback):
        def on_batch_end(self, batch: int, logs: Any) -> None:
            rates.append(self.session.learning_rate)

    session = picture_task(8).session("all", 0.5, {})
    session.fit(picture_task(8).data, epochs=3, callbacks=[Seen(), Scheduled(0.5)], verbose=0)
    schedule = falling(0.5, len(rates))
    assert rates == pytest.approx([schedule(step) for step in range(len(rates))])
    assert max(rates) <= 0.5 and rates[-1] < 0.25
