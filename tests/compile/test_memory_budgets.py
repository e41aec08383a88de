"""Sessions within a budget of memory, whatever it takes."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from test_memory_recompute import MODELS
from test_memory_sharing import every_backend

import circle_train as ct
from circle_train.compile.program import Mode

BATCH = 16


# Budgets


def session_of(name: str, backend: str, budget: int | None, **changes: Any) -> ct.TrainSession:
    """`budget`: what a step may take of it."""
    wanted: dict[str, Any] = {"loss": "mse", "batch_size": BATCH, "batch_norm": "train", "dropout": True}
    config = ct.TrainConfig(**{**wanted, **changes})
    if budget is not None:
        plan = ct.TrainSession(MODELS[name](), config, backend=backend).plan
        config = config.replace(memory_budget=budget + plan.budget_bytes - plan.total_bytes)
    return ct.TrainSession(MODELS[name](), config, backend=backend, seed=3)


def steps(session: ct.TrainSession, count: int = 4) -> list[float]:
    rng = np.random.default_rng(0)
    made = []
    for _ in range(count):
        x = rng.normal(size=(BATCH, *session.program.inputs[0].shape[1:])).astype(np.float32)
        y = rng.normal(size=(BATCH, *session.program.targets[0].shape[1:])).astype(np.float32)
        made.append(session.train_step(x, y).loss)
    return made


@every_backend
@pytest.mark.parametrize("name", ["normed", "dropping"])
def test_where_samples_depend_on_each_other_a_budget_still_holds(name: str, backend: str) -> None:
    whole = session_of(name, backend, None)
    memory = whole.plan.memory
    budget = whole.plan.total_bytes - int(0.3 * memory["arena"])
    small = session_of(name, backend, budget)
    assert small.plan.total_bytes <= budget
    assert steps(small) == steps(whole)
    for key, value in whole.parameters.items():
        np.testing.assert_array_equal(small.parameters[key], value)
    plan = small.plan
    assert plan.parts == 1 and len(plan.repeats) == len(small.program.repeats) > 0
    assert 0 < plan.repeated_work < 0.3
    assert f"made again instead of kept: {len(plan.repeats)} results" in str(plan)
    assert "made again" not in str(whole.plan)


def test_the_least_possible_is_possible() -> None:
    """The number in the refusal is one that is accepted, and less is not."""
    with pytest.raises(
        ct.ConfigError, match="results are made again instead of kept, and the batch cannot"
    ) as error:
        session_of("normed", "reference", None, memory_budget=1000).prepare()
    found = re.search(r"needs (\d+\.\d\d) MB", str(error.value))
    assert found is not None and "batch_norm is 'train'" in str(error.value)
    least = int(float(found[1]) * 1e6)
    session_of("normed", "reference", None, memory_budget=least).prepare()
    with pytest.raises(ct.ConfigError, match="memory_budget is"):
        session_of("normed", "reference", None, memory_budget=least - 10_000).prepare()


@every_backend
def test_a_plan_within_a_budget_names_the_engines(backend: str) -> None:
    """Operators whose results are made again, too, run where they ran without a budget."""
    whole = session_of("normed", backend, None).plan
    thrifty = session_of("normed", backend, whole.total_bytes - whole.memory["arena"] // 4).plan
    assert thrifty.repeats
    assert [op.engine for op in thrifty.operators] == [op.engine for op in whole.operators]


@every_backend
def test_parts_and_repeats_together_when_neither_alone_fits(backend: str) -> None:
    """At the least that sample by sample needs with everything made again, only both together fit."""
    whole = session_of("inverted", backend, None, batch_norm="frozen")
    plain = steps(whole)
    sizes = []
    for budget in np.linspace(0.95, 0.1, 18):
        try:
            small = session_of("inverted", backend, int(budget * whole.plan.total_bytes), batch_norm="frozen")
            plan = small.plan
        except ct.ConfigError:
            break
        assert plan.total_bytes <= budget * whole.plan.total_bytes
        np.testing.assert_allclose(steps(small), plain, rtol=1e-4)
        sizes.append((plan.parts, len(plan.repeats)))
    assert any(parts == 1 and repeats for parts, repeats in sizes)
    assert any(parts > 1 and repeats for parts, repeats in sizes)


def test_a_restored_session_keeps_its_budget(tmp_path: Path) -> None:
    """New arrays of the state are bound to the same programs."""
    whole = session_of("inverted", "reference", None, batch_norm="frozen")
    for share in (0.8, 0.5):
        budget = int(share * whole.plan.total_bytes)
        small = session_of("inverted", "reference", budget, batch_norm="frozen", trainable=("last", 12))
        steps(small)
        name = next(p.name for p in small.program.parameters if not p.trained)
        small.parameters[name] = small.parameters[name] * 0.5
        executor = type(small.programs.executor(Mode.TRAIN, BATCH))
        assert small.plan.total_bytes <= budget
        steps(small)
        assert type(small.programs.executor(Mode.TRAIN, BATCH)) is executor
