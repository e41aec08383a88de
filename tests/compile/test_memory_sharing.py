"""The memory plan: what it promises is allocated, what it shares changes no result, what it predicts is measured."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from networks import cnn, mlp, tied, two_headed
from test_backends import attention, residual

import circle_train as ct
from circle_train.backends import native
from circle_train.backends.base import Backend, Reference
from circle_train.compile import memory
from circle_train.compile.compile import compile
from circle_train.compile.program import Mode, Program
from circle_train.ir import DType, Node, Tensor, lifetimes as lifetimes_of
from circle_train.ir.lifetimes import Block
from circle_train.ir.tensor_type import Array
from circle_train.model import Model
from circle_train.runtime.executor import Executor, execute_once
from circle_train.runtime.state import State

MODELS: dict[str, Callable[[], Model]] = {
    function.__name__: function for function in (mlp, cnn, two_headed, tied, residual, attention)
}

every_model = pytest.mark.parametrize("name", MODELS)

every_backend = pytest.mark.parametrize(
    "backend",
    [
        "reference",
        pytest.param(
            "native",
            marks=pytest.mark.skipif(not native.is_available(), reason="the native engine was not built"),
        ),
    ],
)


def engine(backend: str) -> Backend:
    return native.Native(2) if backend == "native" else Reference()


def config_for(model: Model, size: int, **settings: Any) -> ct.TrainConfig:
    return ct.TrainConfig(loss="mse", optimizer=ct.optimizers.Adam(0.01), batch_size=size, **settings)


def built(name: str, backend: str, trainable: Any = "all") -> tuple[ct.TrainConfig, Program, Backend]:
    """A program of a batch of 2."""
    model, chosen = MODELS[name](), engine(backend)
    config = config_for(model, 2, trainable=trainable)
    return config, compile(model.module.main, config, Mode.TRAIN, 2, chosen), chosen


def feeds_of(program: Program) -> dict[Tensor, Array]:
    rng = np.random.default_rng(11)
    return {
        t: rng.normal(size=t.shape).astype(np.float32)
        if t.dtype is DType.FLOAT32
        else rng.integers(0, 20, t.shape).astype(t.dtype.numpy)
        for t in (*program.inputs, *program.targets)
    }


def lifetimes(program: Program) -> dict[Tensor, tuple[int, int]]:
    """First and last step of every tensor in the arena, counted anew: what a view shows lives as long as the view."""
    graph, plan = program.graph, program.memory
    born = dict.fromkeys(graph.inputs, -1) | {t: i for i, n in enumerate(graph.nodes) for t in n.outputs}
    dies = dict(born)
    for step, node in enumerate(graph.nodes):
        dies.update((t, step) for t in node.inputs if t in born)
    dies.update((t, len(graph.nodes)) for t in graph.outputs if t in born)
    for node in reversed(graph.nodes):
        if node.op.view_input is not None and (source := node.inputs[node.op.view_input]) in born:
            dies[source] = max(dies[source], dies[node.outputs[0]])
    return {t: (born[t], dies[t]) for t in born if t in plan.block_of}


@every_model
@every_backend
@pytest.mark.parametrize("trainable", ["all", ("last", 2)], ids=str)
def test_what_lives_at_once_lies_apart(name: str, backend: str, trainable: Any) -> None:
    _, program, _ = built(name, backend, trainable)
    lives, plan = lifetimes(program), program.memory
    ranges = {t: (plan.offset(t), plan.offset(t) + t.type.nbytes) for t in lives}
    assert all(0 <= start <= end <= program.memory.nbytes for start, end in ranges.values())
    views = {
        n.outputs[0]: n.inputs[n.op.view_input] for n in program.graph.nodes if n.op.view_input is not None
    }

    def root(tensor: Tensor) -> Tensor:
        while tensor in views and views[tensor] is not None:
            tensor = views[tensor]
        return tensor

    for a, (a_born, a_dies) in lives.items():
        for b, (b_born, b_dies) in lives.items():
            apart = ranges[a][1] <= ranges[b][0] or ranges[b][1] <= ranges[a][0]
            # An output may take over the memory of an input that dies in the same step.
            together = a_born < b_dies and b_born < a_dies and root(a) is not root(b)
            assert apart or not together, f"{a} and {b}"


@every_model
@every_backend
def test_what_is_planned_is_allocated(name: str, backend: str) -> None:
    config, program, chosen = built(name, backend)
    executor = Executor(program, State(program.parameters, 0.1), chosen)
    assert (
        executor.arena.nbytes
        == program.arena_bytes
        == max(b.offset + b.nbytes for b in program.memory.blocks)
    )
    session = ct.TrainSession(MODELS[name](), config, backend=backend)
    states = session.state.arrays
    assert session.plan.memory["arena"] == session.programs.executor(Mode.TRAIN, 2).arena.nbytes
    assert session.plan.memory["optimizer"] == sum(
        a.nbytes for key, a in states.items() if key.kind != "value"
    )
    start = executor.arena.ctypes.data
    for tensor in program.memory.block_of:
        address = executor[tensor].ctypes.data
        assert start <= address <= address + tensor.type.nbytes <= start + executor.arena.nbytes


def apart(blocks: list[Block]) -> int:
    """Every block has a place of its own."""
    total = 0
    for block in blocks:
        block.offset, total = total, total + block.nbytes
    return total


def only_views(
    node: Node, position: int, step: int, blocks: dict[Tensor, Block], last_use: dict[Tensor, int]
) -> Tensor | None:
    """Nothing is computed in place; a view takes no step, so it can only show what it is a view of."""
    return node.inputs[node.op.view_input] if position == 0 and node.op.view_input is not None else None


def trained(
    program: Program, config: ct.TrainConfig, chosen: Backend
) -> tuple[list[Array], dict[Any, Array]]:
    """Everything that is read after each of three steps, and the state in the end."""
    state = State(program.parameters, config.rule.base_learning_rate)
    executor, feeds, seen = Executor(program, state, chosen), feeds_of(program), []
    for _ in range(3):
        state.set_scalars(config.rule)
        executor.run(feeds)
        state.step += 1
        seen += [executor[t].copy() for t in program.graph.outputs]
    return seen, state.arrays


@every_model
@every_backend
@pytest.mark.parametrize("trainable", ["all", ("last", 2)], ids=str)
def test_sharing_changes_no_bit(
    name: str, backend: str, trainable: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Against a planner that shares nothing."""
    config, shared, chosen = built(name, backend, trainable)
    seen, arrays = trained(shared, config, chosen)
    monkeypatch.setattr(memory, "place", apart)
    monkeypatch.setattr(lifetimes_of, "_shared_input", only_views)
    _, plain, chosen = built(name, backend, trainable)
    assert plain.memory.nbytes > shared.memory.nbytes
    others, other_arrays = trained(plain, config, chosen)
    for one, other in zip(seen, others, strict=True):
        np.testing.assert_array_equal(one, other)
    assert arrays.keys() == other_arrays.keys()
    for key, array in arrays.items():
        np.testing.assert_array_equal(array, other_arrays[key], err_msg=str(key))


@every_model
def test_a_step_without_any_plan_agrees(name: str) -> None:
    """Every tensor in an array of its own, views too."""
    config, program, chosen = built(name, "reference")
    state = State(program.parameters, config.rule.base_learning_rate)
    state.set_scalars(config.rule)
    graph = program.graph
    values = {t: state.array(t) for t in graph.all_tensors() if t.state is not None}
    values.update(feeds_of(program))
    execute_once(graph.nodes, values)
    expected = [np.array(values[t]) for t in graph.outputs]
    seen, _ = trained(program, config, chosen)
    for one, other in zip(seen, expected, strict=False):  # numpy's products round as their memory is aligned
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6)
