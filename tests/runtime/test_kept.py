"""What a frozen beginning makes of each sample is computed once in a fit, and nothing else tells."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import networks
import numpy as np
import pytest
from networks import make, new_input, weight

import circle_train as ct
from circle_train.backends import native
from circle_train.backends.native.engine.abi import DOT_ROWS, Tier
from circle_train.backends.native.engine.library import load
from circle_train.compile import prefix
from circle_train.ir import Graph
from circle_train.ir.graph import constant
from circle_train.ops.attributes import Activation, Padding
from circle_train.runtime import rows
from circle_train.runtime.executor import Executor

needs_native = pytest.mark.skipif(not native.is_available(), reason="the kernels are not compiled")

RELU6 = Activation.RELU6


def residual() -> ct.Model:
    """Two inverted bottlenecks, the second with a way around it, and two dense layers."""
    graph = Graph("residual", [new_input("image", 1, 16, 16, 3)])
    x = graph.inputs[0]
    wide = {"padding": Padding.SAME, "stride_h": 1, "stride_w": 1, "fused_activation_function": RELU6}
    plain = {"padding": Padding.SAME, "stride_h": 1, "stride_w": 1}
    for name, channels, inner in (("a", 3, 20), ("b", 12, 40)):
        before = x
        x = graph.emit(
            make("CONV_2D", **wide), x, weight(f"{name}/w", inner, 1, 1, channels), weight(f"{name}/b", inner)
        )
        depthwise = make("DEPTHWISE_CONV_2D", **wide, depth_multiplier=1)
        x = graph.emit(depthwise, x, weight(f"{name}/dw", 1, 3, 3, inner), weight(f"{name}/db", inner))
        x = graph.emit(
            make("CONV_2D", **plain), x, weight(f"{name}/p", 12, 1, 1, inner), weight(f"{name}/pb", 12)
        )
        x = graph.emit(make("ADD"), x, before) if name == "b" else x
    x = graph.emit(make("MEAN", keep_dims=False), x, constant(np.array([1, 2], np.int32), "axes"))
    relu = make("FULLY_CONNECTED", fused_activation_function=Activation.RELU)
    x = graph.emit(relu, x, weight("f/w", 32, 12), weight("f/b", 32))
    x = graph.emit(make("FULLY_CONNECTED"), x, weight("g/w", 4, 32), weight("g/b", 4))
    return networks.finish(graph, x)


def data(samples: int = 37, shape: tuple[int, ...] = (16, 16, 3), seed: int = 0) -> tuple[Any, Any]:
    numbers = np.random.default_rng(seed)
    x = numbers.standard_normal((samples, *shape)).astype(np.float32)
    return x, numbers.standard_normal((samples, 4)).astype(np.float32)


def fitted(
    wish: Any = "auto", last: int = 2, **options: Any
) -> tuple[ct.TrainSession, dict[str, list[float]]]:
    settings = {"loss": "mse", "batch_size": 8, "trainable": ("last", last), "metrics": ["mae"]}
    session_options = {k: options.pop(k) for k in ("threads", "backend", "seed") if k in options}
    given = {k: options.pop(k) for k in list(options) if k in ct.TrainConfig.__dataclass_fields__}
    session = ct.TrainSession(residual(), ct.TrainConfig(**{**settings, **given}), **session_options)
    x, y = options.pop("data", None) or data()
    history = session.fit(x, y, epochs=4, verbose=0, keep_frozen=wish, **{"validation_split": 0.3, **options})
    return session, history.history


@pytest.fixture()
def beginnings(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """Batch sizes of the runs of a frozen beginning."""
    runs: list[int] = []
    run = Executor.run_beginning

    def counted(self: Executor, feeds: Any) -> None:
        runs.append(self.program.batch_size)
        run(self, feeds)

    monkeypatch.setattr(Executor, "run_beginning", counted)
    yield runs


@needs_native
@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("last", range(1, 9))
@pytest.mark.parametrize("batch_size", [1, 8, 64])
def test_every_bit_is_the_same(last: int, batch_size: int, threads: int) -> None:
    """Wherever training begins, however the samples are dealt out, with smaller batches at the end."""
    options = {"last": last, "batch_size": batch_size, "threads": threads}
    plain, expected = fitted(False, **options)
    kept, found = fitted("auto", **options)
    assert (plain.kept_bytes == 0) and kept.kept_bytes > 0
    assert found == expected
    assert kept.parameters.flat().tobytes() == plain.parameters.flat().tobytes()


@needs_native
def test_each_sample_goes_through_it_once(beginnings: list[int]) -> None:
    session, _ = fitted(last=1)
    assert sorted(beginnings) == sorted([8, 8, 8, 1, 8, 4])
    assert session.kept_bytes == 37 * 32 * 4
    assert session.plan.kept_bytes == 32 * 4 and "kept by fit 128 B a sample" in str(session.plan)


@needs_native
@pytest.mark.parametrize("last, numbers", [(1, 32), (2, 12), (5, 16 * 16 * 52), (7, 16 * 16 * 12)])
def test_results_end_where_training_begins(last: int, numbers: int) -> None:
    """Two tensors where a way leads around."""
    assert fitted(last=last)[0].kept_bytes == 37 * numbers * 4


@needs_native
def test_less_memory_means_an_earlier_cut(beginnings: list[int]) -> None:
    """From the inside of a bottleneck to before it, and to nothing."""
    plain = fitted(False, last=5)[0].parameters.flat().tobytes()
    sizes = []
    for limit in ("3MB", 37 * 16 * 16 * 40 * 4, 37 * 16 * 16 * 12 * 4, 10_000):
        session, _ = fitted(limit, last=5)
        assert session.parameters.flat().tobytes() == plain
        sizes.append(session.kept_bytes // (37 * 16 * 16 * 4))
    assert sizes == [52, 12, 12, 0]


@needs_native
def test_a_memory_budget_holds_with_what_is_kept() -> None:
    config = ct.TrainConfig("mse", batch_size=8, trainable=("last", 2), metrics=["mae"])
    whole = ct.TrainSession(residual(), config)
    needed, arena = whole.plan.budget_bytes, whole.program.arena_bytes
    assert fitted(last=2, memory_budget=needed + 100)[0].kept_bytes == 0
    assert (
        fitted(last=2, memory_budget=needed + arena // 2)[0].kept_bytes == 0
    )  # making them takes another arena
    session, _ = fitted(last=2, memory_budget=needed + 2 * arena)
    assert session.kept_bytes == 37 * 12 * 4
    beside = session.programs.arena_bytes - session.program.arena_bytes
    assert beside > 0 and session.plan.budget_bytes + beside + session.kept_bytes <= needed + 2 * arena


@needs_native
def test_where_two_lanes_do_not_fit_one_runs_the_beginning_and_its_results_are_kept(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The numbers stay the same, and nothing is allocated beside the step's memory."""
    monkeypatch.setattr(prefix, "CACHE_BYTES", 100_000)
    config = ct.TrainConfig("mse", batch_size=8, trainable=("last", 2), metrics=["mae"])
    whole = ct.TrainSession(residual(), config, threads=2)
    beginning = whole.program.prefix
    assert beginning is not None and beginning.lanes == 2
    budget = whole.plan.budget_bytes - beginning.program.arena_bytes // 2
    free, expected = fitted(False, last=2, threads=2)
    session, found = fitted(last=2, threads=2, memory_budget=budget)
    within = session.program.prefix
    assert within is not None and within.lanes == 1 and session.plan.parts == 1
    assert session.kept_bytes == 37 * 12 * 4 and found == expected
    assert session.parameters.flat().tobytes() == free.parameters.flat().tobytes()
    assert session.plan.budget_bytes <= budget
    assert len({id(e.arena) for e in session.programs._executors.values()}) == 1


@needs_native
def test_arrays_changed_in_place_are_seen(beginnings: list[int]) -> None:
    """A callback that turns some images around; a frozen weight that it sets."""
    results = []
    for wish in (False, "auto"):
        x, y = data()
        session = ct.TrainSession(
            residual(), ct.TrainConfig(loss="mse", batch_size=8, trainable=("last", 1)), backend="native"
        )

        def change(epoch: int, logs: Any, x: Any = x, session: Any = session) -> None:
            x[epoch::5] = x[epoch::5, :, ::-1]
            if epoch == 2:
                session.parameters["b/b"] = session.parameters["b/b"] + 0.5
            if epoch == 3:
                session.parameters["b/b"][:] -= 0.25

        callback = ct.callbacks.LambdaCallback(on_epoch_end=change)
        history = session.fit(x, y, epochs=6, verbose=0, keep_frozen=wish, callbacks=[callback])
        results.append((history.history, session.parameters.flat().tobytes()))
    assert results[0] == results[1]


@needs_native
def test_what_may_change_is_not_kept(tmp_path: Path) -> None:
    """Streams, a single epoch; arrays in a file are."""
    x, y = data(16)
    config = ct.TrainConfig(loss="mse", batch_size=8, trainable=("last", 1))
    session = ct.TrainSession(residual(), config)
    session.fit([(x[:8], y[:8]), (x[8:], y[8:])], epochs=3, verbose=0)
    assert session.kept_bytes == 0
    session.fit(x, y, epochs=1, verbose=0)
    assert session.kept_bytes == 0
    np.save(tmp_path / "x.npy", x)
    session.fit(tmp_path / "x.npy", y, epochs=2, verbose=0)
    assert session.kept_bytes == 16 * 32 * 4
    session.fit([(x, y)], epochs=2, verbose=0, validation_data=(x, y))
    assert session.kept_bytes == 16 * 32 * 4


def test_numpy_keeps_only_when_told_to() -> None:
    """Its products may be rounded otherwise in a batch of another size."""
    _, expected = fitted(False, backend="reference")
    assert fitted(backend="reference")[0].kept_bytes == 0
    kept, found = fitted(True, backend="reference")
    assert kept.kept_bytes > 0
    assert found["loss"] == pytest.approx(expected["loss"], rel=1e-5)


def test_a_wrong_wish_is_refused() -> None:
    with pytest.raises(ct.ConfigError, match="keep_frozen is 'much', expected a size with its unit"):
        fitted("much")


@needs_native
@pytest.mark.parametrize("tier", [Tier.PORTABLE, Tier.AVX2, Tier.AVX512], ids=lambda tier: tier.name)
@pytest.mark.parametrize("name", ["residual", "cnn"])
def test_kernels_give_a_sample_the_same_bits_in_any_batch(name: str, tier: Tier) -> None:
    """What keeping results relies on; dense layers change their order of adding once, at DOT_ROWS rows."""
    library = load()
    assert library is not None
    if tier > library.ct_best_tier():
        pytest.skip(f"this processor cannot run {tier.name}")
    model, shape = (residual(), (16, 16, 3)) if name == "residual" else (networks.cnn(), (9, 9, 3))
    x, _ = data(97, shape)
    session = ct.TrainSession(model, ct.TrainConfig(loss="mse", batch_size=8))
    session.programs.backend = native.Native(2, tier)
    few = [outputs(session, x, size) for size in (1, 2, 3, 5, 31, DOT_ROWS)]
    many = [outputs(session, x, size) for size in (DOT_ROWS + 1, 64, 97)]
    for found in (few, many):
        least = min(map(len, found))
        assert len({rows[:least].tobytes() for rows in found}) == 1


def outputs(session: ct.TrainSession, x: Any, size: int) -> Any:
    """Of whole batches of this size."""
    starts = range(0, len(x) - size + 1, size)
    return np.concatenate([session.predict_batch([x[start : start + size]])[0] for start in starts])


@pytest.mark.parametrize("disk", ["room", "full"])
def test_many_results_lie_in_a_file_and_are_the_same(monkeypatch: pytest.MonkeyPatch, disk: str) -> None:
    """Where the disk has no room they lie in memory as ever."""
    plain, history = fitted()
    monkeypatch.setattr(rows, "LARGE", 1)
    if disk == "full":

        def refuse(*_: int) -> None:
            raise OSError(28, "No space left on device")

        monkeypatch.setattr(os, "posix_fallocate", refuse, raising=False)
    made = rows.rows((30, 4), np.dtype(np.float32))
    assert (made.mapping is not None) == (disk == "room" and sys.platform == "linux")
    filed, same = fitted()
    assert same == history
    np.testing.assert_array_equal(plain.parameters.flat(), filed.parameters.flat())
