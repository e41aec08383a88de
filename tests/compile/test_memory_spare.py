"""Without a budget: what is as good as free to make again is not kept; the same bits, and small programs as they are."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from test_memory_recompute import MODELS, every_backend, program_of
from test_memory_sharing import trained

import circle_train as ct
from circle_train.compile.thrift import spare as module
from circle_train.compile.thrift.spare import spare
from circle_train.compile.thrift.work import total_work
from circle_train.ir.verify import verify
from circle_train.session import programs


@pytest.fixture
def any_size(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if the tests' models were large: beginning a node, which costs as much as many bytes, would not count."""
    monkeypatch.setattr(module, "LARGE", 0)
    monkeypatch.setattr(module, "DEAR", 100.0)
    monkeypatch.setattr(module, "SHARE", 0.5)


@every_backend
@pytest.mark.parametrize("name", MODELS)
@pytest.mark.usefixtures("any_size")
def test_the_same_bits_in_less_memory(name: str, backend: str) -> None:
    config, new, chosen = program_of(name, backend)
    kept, less = new(), spare(new())
    verify(less.graph)
    assert bool(less.repeats) == (less.arena_bytes < kept.arena_bytes)
    assert less.arena_bytes <= (module.WORTH if less.repeats else 1) * kept.arena_bytes
    expected, states = trained(kept, config, chosen)
    found, its = trained(less, config, chosen)
    np.testing.assert_equal(found, expected)
    np.testing.assert_equal(its, states)


@pytest.mark.usefixtures("any_size")
def test_no_more_is_done_twice_than_is_allowed(monkeypatch: pytest.MonkeyPatch) -> None:
    _, new, _ = program_of("normed", "reference")
    monkeypatch.setattr(module, "WORTH", 1.0)
    shares = []
    for share in (0.0, 0.06, 0.5):
        monkeypatch.setattr(module, "SHARE", share)
        program = spare(new())
        shares.append(total_work(program.repeats))
        assert shares[-1] <= share * total_work(new().graph.nodes)
    assert shares[0] == 0 and shares[-1] > 0


def test_only_what_is_as_good_as_free(any_size: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each result that is dropped saves at least its share of the work that it costs."""
    monkeypatch.setattr(module, "DEAR", 0.0)
    _, new, _ = program_of("normed", "reference")
    assert not spare(new()).repeats


@pytest.mark.parametrize("limit", ["LARGE", "MANY"])
def test_small_programs_and_very_long_ones_stay_as_they_are(
    any_size: None, limit: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, new, _ = program_of("normed", "reference")
    assert spare(new()).repeats
    monkeypatch.setattr(module, limit, {"LARGE": 1 << 30, "MANY": 3}[limit])
    program = new()
    assert spare(program) is program


@pytest.mark.usefixtures("any_size")
def test_a_session_says_what_it_makes_again_and_a_budget_decides_by_itself(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def session(**settings: Any) -> ct.TrainSession:
        config = ct.TrainConfig(loss="mse", batch_size=16, batch_norm="train", **settings)
        return ct.TrainSession(MODELS["normed"](), config)

    free, bound = session(), session(memory_budget="1GB")
    assert "made again instead of kept" in str(free.plan)
    assert "made again" not in str(bound.plan)
    assert free.plan.memory["arena"] < bound.plan.memory["arena"]
    x, y = (
        np.random.default_rng(2).normal(size=(2, 16, 12, 12, 3)).astype(np.float32),
        np.ones((16, 4), np.float32),
    )
    for batch in x:
        assert free.train_step(batch, y).loss == bound.train_step(batch, y).loss
        free.train_step(batch, y, update=False, accumulate=True)
    np.testing.assert_array_equal(free.parameters.flat(), bound.parameters.flat())
    assert programs.spare is spare
