"""Learning rate schedules against the formulas that others publish."""

from __future__ import annotations

from math import cos, pi
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import circle_train as ct
from circle_train.errors import ConfigError
from circle_train.optimizers.schedules import (
    Cosine,
    Exponential,
    Function,
    LinearWarmup,
    OneCycle,
    Step,
    Trapezoid,
)

MODEL = Path(__file__).parents[1] / "data" / "mlp.circle"
# What PyTorch 2's OneCycleLR(max_lr=0.1, total_steps=10) gives for its steps 0 … 9.
ONE_CYCLE = [0.004, 0.052, 0.1, 0.09504846, 0.08117457, 0.0611262, 0.0388742, 0.01882583, 0.00495194, 4e-07]


def test_linear_warmup_is_what_onnx_runtime_documents() -> None:
    """Its golden run with warm-up 3 of 8: factor t/3 for t < 3, (8-t)/5 from then on."""
    rates = [LinearWarmup(0.1, warmup_steps=3, total_steps=8)(t) for t in range(10)]
    assert rates == pytest.approx([0.1 * f for f in (0, 1 / 3, 2 / 3, 1, 4 / 5, 3 / 5, 2 / 5, 1 / 5, 0, 0)])
    assert LinearWarmup(0.1, warmup_steps=0, total_steps=4)(0) == 0.1


def test_cosine_falls_to_alpha_after_its_warmup() -> None:
    schedule = Cosine(0.2, total_steps=10, alpha=0.1)
    assert [schedule(t) for t in (0, 10, 50)] == pytest.approx([0.2, 0.02, 0.02])
    assert schedule(5) == pytest.approx(0.2 * (0.1 + 0.9 * 0.5))
    assert schedule(3) == pytest.approx(0.2 * (0.1 + 0.9 * 0.5 * (1 + cos(0.3 * pi))))
    warm = Cosine(1.0, total_steps=6, warmup_steps=2)
    assert [warm(t) for t in range(7)] == pytest.approx(
        [0, 0.5, *(0.5 * (1 + cos(pi * k / 4)) for k in range(5))]
    )


def test_steps_and_exponentials() -> None:
    assert [Step(1.0, step_size=3, gamma=0.5)(t) for t in (0, 2, 3, 6)] == [1, 1, 0.5, 0.25]
    assert Exponential(1.0, decay_steps=10, decay_rate=0.5)(5) == pytest.approx(0.5**0.5)


def test_a_trapezoid_rises_stays_and_falls() -> None:
    rate = Trapezoid(2.0, total_steps=10, falling_steps=4, warmup_steps=2)
    assert [rate(t) for t in range(13)] == [0, 1, 2, 2, 2, 2, 2, 1.5, 1, 0.5, 0, 0, 0]
    assert [Trapezoid(1.0, total_steps=4, falling_steps=4)(t) for t in range(5)] == [1, 0.75, 0.5, 0.25, 0]


def test_one_cycle_is_pytorchs() -> None:
    assert [OneCycle(0.1, total_steps=10)(t) for t in range(10)] == pytest.approx(ONE_CYCLE, abs=1e-8)


@pytest.mark.parametrize("steps", [1, 2, 3, 4])
def test_short_cycles_stay_finite(steps: int) -> None:
    assert all(0 <= OneCycle(0.1, total_steps=steps)(t) <= 0.1 for t in range(steps + 2))


def test_a_function_gives_the_rate_itself() -> None:
    assert Function(function=lambda t: 0.5**t)(3) == 0.125
    with pytest.raises(ConfigError, match=r"gave -1\.0 for step 0, expected a number from 0"):
        Function(function=lambda t: -1)(0)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: LinearWarmup(-1.0), "learning_rate is -1.0, expected a positive number"),
        (lambda: LinearWarmup(total_steps=0), "total_steps is 0, expected a count from 1"),
        (
            lambda: Cosine(total_steps=5, warmup_steps=5),
            "warmup_steps is 5, expected from 0 and less than total_steps",
        ),
        (lambda: Cosine(alpha=2.0), "alpha is 2.0"),
        (lambda: Step(gamma=0.0), "gamma is 0.0, expected a positive number"),
        (lambda: Exponential(decay_steps=0), "decay_steps is 0"),
        (
            lambda: Trapezoid(total_steps=5, falling_steps=6),
            "falling_steps is 6, expected from 1 to total_steps",
        ),
        (lambda: OneCycle(pct_start=1.0), "pct_start is 1.0, expected between 0 and 1"),
    ],
)
def test_settings_out_of_range_are_refused(make: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        make()


def session(optimizer: Any) -> ct.TrainSession:
    return ct.TrainSession(MODEL, ct.TrainConfig("categorical_crossentropy", optimizer, batch_size=5))


def batch() -> tuple[Any, Any]:
    rng = np.random.default_rng(0)
    return rng.normal(size=(5, 6)).astype(np.float32), np.eye(5, dtype=np.float32)


def test_a_session_follows_the_schedule_and_takes_another_rate_at_any_time() -> None:
    trained = session(ct.optimizers.SGD(ct.schedules.LinearWarmup(0.3, warmup_steps=3, total_steps=9)))
    x, y = batch()
    rates = []
    for step in range(6):
        if step == 4:
            trained.learning_rate = 10 * trained.learning_rate
        rates.append(trained.learning_rate)
        before = trained.parameters.flat().copy()
        trained.train_step(x, y)
        assert np.array_equal(before, trained.parameters.flat()) == (rates[-1] == 0)
    assert rates == pytest.approx([0, 0.1, 0.2, 0.3, 2.5, 2.0])


def test_steps_are_those_of_the_rates_by_hand() -> None:
    scheduled = session(ct.optimizers.SGD(lambda step: 0.5 / (step + 1)))
    by_hand = session(ct.optimizers.SGD(1.0))
    x, y = batch()
    for step in range(4):
        by_hand.learning_rate = 0.5 / (step + 1)
        assert scheduled.train_step(x, y).loss == by_hand.train_step(x, y).loss
    np.testing.assert_array_equal(scheduled.parameters.flat(), by_hand.parameters.flat())


def test_a_schedule_goes_on_after_a_checkpoint(tmp_path: Path) -> None:
    optimizer = ct.optimizers.AdamW(ct.schedules.Cosine(0.1, total_steps=8), clip_norm=0.5)
    straight, first, second = session(optimizer), session(optimizer), session(optimizer)
    x, y = batch()
    for trained in (straight, first):
        for _ in range(3):
            trained.train_step(x, y)
        trained.learning_rate *= 0.5
    first.save_checkpoint(tmp_path / "c.safetensors")
    second.load_checkpoint(tmp_path / "c.safetensors")
    for trained in (straight, second):
        for _ in range(3):
            trained.train_step(x, y)
    assert second.learning_rate == straight.learning_rate
    np.testing.assert_array_equal(second.parameters.flat(), straight.parameters.flat())


def test_parameter_groups_follow_the_schedule() -> None:
    """Each rate in proportion, step by step: with the group's weights alone trained, as a session of those rates."""
    schedule = ct.schedules.LinearWarmup(0.3, warmup_steps=3, total_steps=9)
    groups = [ct.optimizers.ParameterGroup("*", multiplier=0.5)]
    grouped, by_hand = session(ct.optimizers.SGD(schedule, groups=groups)), session(ct.optimizers.SGD(1.0))
    x, y = batch()
    for step in range(6):
        by_hand.learning_rate = 0.5 * schedule(step)
        assert grouped.train_step(x, y).loss == by_hand.train_step(x, y).loss
    np.testing.assert_allclose(grouped.parameters.flat(), by_hand.parameters.flat(), rtol=1e-6, atol=1e-7)
