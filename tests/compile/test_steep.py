"""A finite loss whose gradients are not finite changes nothing, on either engine, however the step is taken."""

from __future__ import annotations

from collections.abc import Callable

import networks
import numpy as np
import pytest

import circle_train as ct
from circle_train.compile.compile import compile
from circle_train.compile.program import Mode
from circle_train.ir import Graph, Tensor
from circle_train.ir.graph import constant
from circle_train.model import Model
from circle_train.ops.internal.gradient import GuardFinite

Between = Callable[[Graph, Tensor], Tensor]
WIDTH = 4


def number(value: float) -> Tensor:
    return constant(np.array([value], np.float32), "number")


def norm(graph: Graph, x: Tensor) -> Tensor:
    squares = graph.emit(networks.make("SQUARE"), x)
    total = graph.emit(networks.make("SUM", keep_dims=True), squares, constant(np.array([1], np.int32)))
    return graph.emit(networks.make("ADD"), x, graph.emit(networks.make("SQRT"), total))


def root_as_power(graph: Graph, x: Tensor) -> Tensor:
    return graph.emit(networks.make("POW"), graph.emit(networks.make("ABS"), x), number(0.5))


def angle(graph: Graph, x: Tensor) -> Tensor:
    return graph.emit(networks.make("ATAN2"), x, x)


def recurrence(graph: Graph, x: Tensor) -> Tensor:
    """One huge weight at every step of time: finite results, a product of slopes that is not."""
    weight = constant(1e10 * np.eye(WIDTH, dtype=np.float32), "recurrent")
    for _ in range(5):
        x = graph.emit(networks.make("TANH"), graph.emit(networks.make("FULLY_CONNECTED"), x, weight, None))
    return x


def root_of_shifted(graph: Graph, x: Tensor) -> Tensor:
    shifted = graph.emit(networks.make("ADD"), graph.emit(networks.make("SQUARE"), x), number(1e-6))
    return graph.emit(networks.make("DIV"), x, graph.emit(networks.make("SQRT"), shifted))


def cube(graph: Graph, x: Tensor) -> Tensor:
    return graph.emit(networks.make("POW"), graph.emit(networks.make("ABS"), x), number(3.0))


def behind_a_mask(function: str) -> Between:
    """0 where x is 0, else a function of |x| whose slope has no bound there."""

    def made(graph: Graph, x: Tensor) -> Tensor:
        away, square = (graph.emit(networks.make(name), x) for name in ("ABS", "SQUARE"))
        one = constant(np.ones([1], np.float32), "one")
        of = {"DIV": (one, away), "POW": (away, number(-0.5)), "ATAN2": (square, away)}.get(function, (away,))
        y = graph.emit(networks.make(function), *of)
        zero = graph.emit(networks.make("EQUAL"), x, number(0.0))
        return graph.emit(networks.make("SELECT_V2"), zero, number(0.0), y)

    return made


STEEP = [norm, root_as_power, angle, recurrence]


def between_layers(between: Between) -> Model:
    """Something between a first layer without bias and a last one, whose update would come first."""
    graph = Graph("steep", [networks.new_input("x", 1, WIDTH)])
    x = graph.emit(
        networks.make("FULLY_CONNECTED"), graph.inputs[0], networks.weight("first", WIDTH, WIDTH), None
    )
    x = between(graph, x)
    return networks.finish(
        graph, graph.emit(networks.make("FULLY_CONNECTED"), x, networks.weight("last", 3, WIDTH), None)
    )


def config(**changes: object) -> ct.TrainConfig:
    return ct.TrainConfig(loss="mse", optimizer="adam", batch_size=4, **changes)  # type: ignore[arg-type]


def batch(spoil: bool) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(4, WIDTH)).astype(np.float32) * (0 if spoil else 1)
    return x, rng.normal(size=(4, 3)).astype(np.float32)


@pytest.mark.parametrize("backend", ["native", "reference"])
@pytest.mark.parametrize("accumulate", [False, True])
@pytest.mark.parametrize("between", STEEP)
def test_a_step_without_finite_gradients_changes_nothing(
    between: Between, accumulate: bool, backend: str
) -> None:
    session = ct.TrainSession(between_layers(between), config(), backend=backend)
    if between is not recurrence:
        session.train_step(*batch(spoil=False))
    before = {key: array.copy() for key, array in session.state.arrays.items() if key.kind != "scalars"}
    steps = session.state.step
    with pytest.raises(ct.ConfigError, match=r"the loss is finite, but the gradient of .* those before"):
        session.train_step(*batch(spoil=True), accumulate=accumulate)
    assert session.state.step == steps
    for key, value in before.items():
        np.testing.assert_array_equal(session.state.arrays[key], value)
    assert all(np.isfinite(array).all() for array in session.state.arrays.values())


def test_parts_of_a_batch_are_guarded_as_the_whole() -> None:
    whole = ct.TrainSession(between_layers(norm), config(), threads=1)
    session = ct.TrainSession(between_layers(norm), config(), threads=1)
    session.prepare()
    part = compile(session.model.module.main, session.config, Mode.ACCUMULATE, 1, session.backend)
    assert len(guards(part.graph)) == len(guards(whole.program.graph)) > 1


@pytest.mark.parametrize("between", [root_of_shifted, cube, lambda graph, x: x])
def test_what_is_kept_away_from_zero_is_not_guarded(between: Between) -> None:
    """Only the loss is: a guard costs the memory of gradients that wait for it."""
    for backend in ("native", "reference"):
        session = ct.TrainSession(between_layers(between), config(), backend=backend)
        assert len(guards(session.program.graph)) == 1
        session.train_step(*batch(spoil=True))


def test_every_update_waits_for_the_guards() -> None:
    """Those of layers behind the steep place would come sooner."""
    graph = ct.TrainSession(between_layers(norm), config(), backend="reference").program.graph
    last_guard = max(graph.place(node) for node in guards(graph))
    updates = [node for node in graph.nodes if node.op.name == "UPDATE"]
    assert updates and all(graph.place(node) > last_guard for node in updates)


@pytest.mark.parametrize("backend", ["native", "reference"])
@pytest.mark.parametrize("function", ["SQRT", "RSQRT", "LOG", "DIV", "POW", "ATAN2"])
def test_a_slope_behind_a_mask_is_none(function: str, backend: str) -> None:
    """As if the masked sample had not been there: PyTorch gives NaN unless one writes that oneself."""
    x, y = batch(spoil=False)
    x[1] = 0
    kept = [0, 2, 3]
    steps = []
    for chosen in ([0, 1, 2, 3], kept):
        sgd = config().replace(optimizer=ct.optimizers.SGD(learning_rate=0.1), batch_size=len(chosen))
        session = ct.TrainSession(between_layers(behind_a_mask(function)), sgd, backend=backend)
        first = next(name for name in session.parameters if "first" in name)
        before = session.parameters[first].copy()
        session.train_step(x[chosen], y[chosen])
        steps.append(len(chosen) * (session.parameters[first] - before))
    assert np.abs(steps[1]).max() > 1e-4
    np.testing.assert_allclose(*steps, rtol=1e-3, atol=1e-5)


def guards(graph: Graph) -> list:
    return [node for node in graph.nodes if isinstance(node.op, GuardFinite)]
