"""A finite loss whose gradients overflow float32: no weight moves, and where one has, nobody is told otherwise."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import networks
import numpy as np
import pytest

import circle_train as ct
from circle_train.ir import Graph, Tensor
from circle_train.ir.graph import constant
from circle_train.model import Model

WAYS: list[dict[str, Any]] = [
    {"backend": "native"},
    {"backend": "reference"},
    {"backend": "native", "activations": "bfloat16"},
    {"backend": "native", "memory_budget": "32MB"},
]


def layers(first: float, last: float) -> Model:
    graph = Graph("far", [networks.new_input("x", 1, 4)])

    def weight(name: str, value: float, *shape: int) -> Tensor:
        return constant(np.full(shape, value, np.float32), name)

    x = graph.emit(networks.make("FULLY_CONNECTED"), graph.inputs[0], weight("first", first, 3, 4), None)
    return networks.finish(
        graph, graph.emit(networks.make("FULLY_CONNECTED"), x, weight("last", last, 2, 3), None)
    )


def session(model: Model, optimizer: Any, backend: str = "native", **changes: Any) -> ct.TrainSession:
    config = ct.TrainConfig(loss="mse", optimizer=optimizer, batch_size=4, **changes)
    return ct.TrainSession(model, config, backend=backend)


def held(of: ct.TrainSession) -> dict[Any, np.ndarray]:
    return {key: array.copy() for key, array in of.state.arrays.items() if key.kind != "scalars"}


def batch(size: float) -> tuple[np.ndarray, np.ndarray]:
    return np.full((4, 4), size, np.float32), np.zeros((4, 2), np.float32)


@pytest.mark.parametrize("optimizer", ["sgd", "adam", "adamw", "rmsprop", "adagrad"])
@pytest.mark.parametrize("way", WAYS, ids=lambda way: "-".join(map(str, way.values())))
@pytest.mark.parametrize("accumulate", [False, True])
def test_a_step_on_numbers_far_from_zero_changes_nothing(
    optimizer: str, way: dict[str, Any], accumulate: bool
) -> None:
    trained = session(layers(1e-20, 1.0), optimizer, **way)
    trained.train_step(*batch(1.0), accumulate=accumulate)
    before, steps = held(trained), trained.state.step
    with pytest.raises(
        ct.ConfigError, match=r"the loss is finite, but its gradients are not: .* those before"
    ):
        trained.train_step(*batch(1e30), accumulate=accumulate)
    assert trained.state.step == steps
    for key, value in before.items():
        np.testing.assert_array_equal(trained.state.arrays[key], value)


@pytest.mark.parametrize("backend", ["native", "reference"])
def test_a_course_that_diverges_ends_with_numbers(backend: str) -> None:
    """The loss grows until something overflows, whatever is the first to."""
    for rate in (0.3, 3.0, 40.0, 1e3, 1e5):
        trained = session(networks.mlp(softmax=False), ct.optimizers.SGD(rate), backend)
        rng = np.random.default_rng(0)
        x, y = rng.normal(size=(4, 6)).astype(np.float32) * 5, rng.normal(size=(4, 4)).astype(np.float32)
        with pytest.raises(ct.ConfigError, match="those before this step; lower the learning rate"):
            for _ in range(200):
                trained.train_step(x, y)
        assert all(np.isfinite(array).all() for array in trained.state.arrays.values()), rate


def test_gradients_that_overflow_as_they_add_up_move_nothing() -> None:
    trained = session(layers(1.0, 1.0), "sgd")
    trained.train_step(*batch(1.0), update=False, accumulate=True)
    next(array for key, array in trained.state.arrays.items() if key.kind == "gradient")[0] = np.inf
    before = held(trained)
    with pytest.raises(ct.ConfigError, match=r"the gradients that wait .* reset_gradients"):
        trained.update()
    for key, value in before.items():
        np.testing.assert_array_equal(trained.state.arrays[key], value)
    trained.reset_gradients()
    trained.train_step(*batch(1.0), accumulate=True)


def test_weights_that_are_no_numbers_are_neither_written_nor_called_sound(tmp_path: Path) -> None:
    """Nothing in this batch is large but a slope between two weights."""
    trained = session(layers(1e-30, 1e34), ct.optimizers.SGD(1.0))
    trained.train_step(*batch(1.0))
    assert not np.isfinite(trained.parameters["first"]).all()
    with pytest.raises(
        ct.ConfigError, match=r"an earlier step has left NaN or infinite values .* load a checkpoint"
    ):
        trained.train_step(*batch(1.0))
    for name, write in {
        "a.circle": trained.export,
        "b.safetensors": trained.save_checkpoint,
        "c.ckpt": trained.save_checkpoint,
        "d.circle": trained.export_circleplus,
    }.items():
        with pytest.raises(ct.ConfigError, match=f"{name}: nothing is written"):
            write(tmp_path / name)
    assert not list(tmp_path.iterdir())
