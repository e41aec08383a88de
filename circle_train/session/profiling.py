"""Where a training step spends its time, node by node, as the engine runs it."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from circle_train.backends.base import Step
from circle_train.data.coercion import coerce
from circle_train.errors import ConfigError
from circle_train.ir import Node, Tensor
from circle_train.ir.tensor_type import Array
from circle_train.ops.internal.fused import Fused
from circle_train.record import record
from circle_train.report.plan import table
from circle_train.runtime.divided import DividedExecutor
from circle_train.runtime.executor import Executor
from circle_train.runtime.state import State
from circle_train.session.learned import Learned


@record
class NodeProfile:
    """One node of the program: its least seconds and its work in a training step."""

    name: str
    operators: tuple[str, ...]
    """What the engine joined into it; the operator itself where it joined nothing."""
    engine: str
    seconds: float
    flops: int
    nbytes: int
    """Every input and output once."""


@record
class Profile:
    """A measured training step; `str(profile)` is a table, the slowest node first."""

    nodes: tuple[NodeProfile, ...]
    step_seconds: float
    """The least of a whole step as it really runs: joined calls, no clock between them."""
    threads: int = 1
    serial: float | None = None
    """The share of one thread's work that more threads do not speed up, after what so many did; None: not measured."""

    def speedup(self, threads: int) -> float:
        """How many times as fast as one thread so many can be, by Amdahl's law."""
        serial = 1.0 if self.serial is None else self.serial
        return 1 / (serial + (1 - serial) / threads)

    @property
    def seconds(self) -> float:
        """The sum over the nodes, each called by itself."""
        return sum(node.seconds for node in self.nodes)

    def __str__(self) -> str:
        rows = [("node", "engine", "ms", "share", "GFLOP/s", "GB/s")]
        for node in sorted(self.nodes, key=lambda node: -node.seconds):
            # A node may be faster than the clock's tick.
            rate = 1e-9 / max(node.seconds, 1e-9)
            share = node.seconds / max(self.seconds, 1e-9)
            rows.append(
                (
                    node.name,
                    node.engine,
                    f"{node.seconds * 1e3:.3f}",
                    f"{share:.1%}",
                    f"{node.flops * rate:.1f}",
                    f"{node.nbytes * rate:.1f}",
                )
            )
        return "\n".join(
            [
                *table(rows),
                "",
                f"{self._scaling()}{self.seconds * 1e3:.3f} ms node by node, {self.step_seconds * 1e3:.3f} ms a whole step",
            ]
        )

    def _scaling(self) -> str:
        if self.serial is None:
            return ""
        at_most = ", ".join(f"{self.speedup(n):.2f}× on {n}" for n in (2, 4, 8))
        return f"{self.serial:.1%} of one thread's work is serial, as {self.threads} threads show: at most {at_most}; "


def profile(session: Learned, x: Any, y: Any, steps: int) -> Profile:
    """Measure training steps on a batch, or on zeros; the state is afterwards what it was."""
    if steps < 1:
        raise ConfigError(f"profile: steps is {steps}, expected a whole number from 1")
    executor = session.programs.whole
    feeds: dict[Tensor, Array] = {}
    for tensors, data, name in ((executor.program.inputs, x, "x"), (executor.program.targets, y, "y")):
        zeros = [np.zeros(tensor.shape, tensor.dtype.numpy) for tensor in tensors]
        feeds.update(zip(tensors, zeros if data is None else coerce(data, tensors, name), strict=True))
    session.state.require_values()
    with _restored(session.state):
        session.state.set_scalars(session.config.rule)
        return measure(executor, feeds, steps)


@contextmanager
def _restored(state: State) -> Iterator[None]:
    """What the steps write is undone."""
    before = {key: array.copy() for key, array in state.arrays.items() if array.flags.writeable}
    try:
        yield
    finally:
        for key, array in before.items():
            np.copyto(state.arrays[key], array)


def measure(executor: Executor, feeds: Mapping[Tensor, Array], steps: int) -> Profile:
    """Run the program some times whole and some times node by node; the least of each counts."""
    executor.run(feeds)
    whole = min(_timed(executor, feeds) for _ in range(steps))
    least, calls = _least(executor, feeds, steps)
    engines = {node: engine for one in _parts(executor) for node, engine in one.engines.items()}
    nodes = tuple(_profile(node, least[node], calls[node], engines) for node in least)
    return Profile(nodes, whole, *_serial(executor, feeds, steps, least))


def _least(
    executor: Executor, feeds: Mapping[Tensor, Array], steps: int
) -> tuple[dict[Node, float], dict[Node, int]]:
    """Each node's least seconds in a step, and how often it is called there."""
    side_by_side = {
        node: len(one.lanes) for one in _outer(executor) for lane in one.lanes for node, _ in lane.bound
    }
    least: dict[Node, float] = {}
    calls: dict[Node, int] = {}
    for _ in range(steps):
        spent: dict[Node, list[float]] = {}
        with _clocked(executor, spent):
            executor.run(feeds)
        for node, times in spent.items():
            least[node] = min(sum(times) / side_by_side.get(node, 1), least.get(node, float("inf")))
            calls[node] = len(times)
    return least, calls


def _serial(
    executor: Executor, feeds: Mapping[Tensor, Array], steps: int, least: Mapping[Node, float]
) -> tuple[int, float | None]:
    """The threads, and the serial share: of every node what Amdahl's law makes of its times on one thread and on all."""
    threads = executor.backend.threads
    if threads == 1 or isinstance(executor, DividedExecutor) or executor.lanes:
        return threads, None
    one = executor.backend.side_by_side(2)[0]
    alone, _ = _least(Executor(executor.program, executor.state, one, executor.arena), feeds, steps)
    serial = 0.0
    for node, seconds in alone.items():
        share = (threads * least[node] / max(seconds, 1e-9) - 1) / (threads - 1)
        serial += seconds * min(max(share, 0.0), 1.0)
    return threads, serial / max(sum(alone.values()), 1e-9)


def _outer(executor: Executor) -> list[Executor]:
    """The executors that together run a step, each perhaps with a frozen beginning."""
    return [executor.part, executor.update] if isinstance(executor, DividedExecutor) else [executor]


def _parts(executor: Executor) -> list[Executor]:
    return [part for one in _outer(executor) for part in (*one.lanes, one)]


def _timed(executor: Executor, feeds: Mapping[Tensor, Array]) -> float:
    start = time.perf_counter()
    executor.run(feeds)
    return time.perf_counter() - start


@contextmanager
def _clocked(executor: Executor, spent: dict[Node, list[float]]) -> Iterator[None]:
    """Every node by itself and under the clock, instead of the joined calls."""
    joined = [(one, one.steps) for one in _parts(executor)]
    try:
        for one, _ in joined:
            one.steps = [_clock(step, spent.setdefault(node, [])) for node, step in one.bound]
        yield
    finally:
        for one, steps in joined:
            one.steps = steps


def _clock(step: Step, times: list[float]) -> Step:
    def clocked() -> None:
        start = time.perf_counter()
        step()
        times.append(time.perf_counter() - start)

    return clocked


def _profile(node: Node, seconds: float, calls: int, engines: Mapping[Node, str]) -> NodeProfile:
    members = node.originals or (node,)
    return NodeProfile(
        _name(node, members),
        tuple(map(str, members)),
        engines.get(members[0], "view"),
        seconds,
        calls * node.flops,
        calls * node.nbytes,
    )


def _name(node: Node, members: Sequence[Node]) -> str:
    if isinstance(node.op, Fused):
        return f"{node.op.kernel}: {members[0]}"
    return str(node) if node.outputs else f"{node.op.name} '{node.inputs[0].name if node.inputs[0] else ''}'"
