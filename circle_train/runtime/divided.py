"""Executors that take each batch in equal parts: within a budget of memory, or because the file was made for so few samples."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace

import numpy as np

from circle_train.backends.base import Backend, Reference
from circle_train.compile.program import Mode, Program
from circle_train.compile.thrift.budget import Fit, fit_arena, fit_budget, lessened, parse_bytes
from circle_train.errors import ConfigError
from circle_train.ir import Graph, StateKey, Tensor
from circle_train.ir.tensor_type import Array
from circle_train.runtime.executor import Executor
from circle_train.runtime.pages import untouched
from circle_train.runtime.state import State
from circle_train.runtime.undisturbed import Undisturbed
from circle_train.settings.config import TrainConfig


class PartsExecutor(Executor):
    """Behaves as the executor of the whole batch: parts of the feeds are run one by one."""

    def __init__(
        self, whole: Program, part: Program, state: State, backend: Backend, arena: Array | None = None
    ) -> None:
        graph = Graph(whole.graph.name, whole.graph.inputs, nodes=list(part.graph.nodes))
        prefix = part.prefix if whole.part is None else whole.prefix
        self.program = replace(whole, graph=graph, memory=part.memory, prefix=prefix, repeats=part.repeats)
        self.whole = whole
        self.state, self.generation = state, state.generation
        self.part = Executor(part, state, backend, arena)
        self.arena = self.part.arena
        self.backend, self.lanes = backend, []
        twins = dict(zip(part.operators[: part.forward_nodes], whole.operators, strict=False))
        self.engines = {twins.get(node, node): engine for node, engine in self.part.engines.items()}
        self.bound = list(self.part.bound)
        ends = [*whole.losses, *([whole.loss] if whole.loss is not None else [])]
        kept = dict.fromkeys([*whole.outputs, *whole.extra, *ends])
        self.arrays: dict[Tensor, Array] = {t: np.zeros(t.shape, t.dtype.numpy) for t in kept}
        self._share = part.share
        self.parts = whole.batch_size // part.batch_size
        self.inner = dict(zip([*whole.inputs, *whole.targets], [*part.inputs, *part.targets], strict=True))
        """What a part is fed, by what the batch is fed."""
        if self.prefix is not None and prefix is not None and part.prefix is not None:
            self.inner.update(zip(prefix.results, part.prefix.results, strict=True))

    @property
    def prefix(self) -> Executor | None:
        """The frozen beginning of a part, where the results of all may be kept."""
        return self.part.prefix if self.whole.part is not None else None

    def run_beginning(self, feeds: Mapping[Tensor, Array]) -> None:
        """Part by part; the results are put one behind the other."""
        prefix = self.program.prefix
        assert prefix is not None
        for number in range(self.parts):
            self.part.run_beginning(self._feeds_of(number, feeds))
            for mine in prefix.results:
                array = self.arrays.setdefault(mine, np.zeros(mine.shape, mine.dtype.numpy))
                np.copyto(self._of(number, mine, array), self.part[self.inner[mine]])

    def run(self, feeds: Mapping[Tensor, Array], undisturbed: Undisturbed | None = None) -> None:
        """What one part adds to gradients that wait is taken back where another is refused."""
        sums = {key: array.copy() for key, array in self._accumulators()} if self._adds else {}
        if undisturbed is not None and self._adds:
            undisturbed.begin()
        try:
            self._run_parts(feeds)
        except BaseException:
            for key, array in self._accumulators():
                np.copyto(array, sums.get(key, array))
            raise

    def rebound(self) -> Executor:
        """The same programs bound to the arrays that the state has now."""
        return PartsExecutor(self.whole, self.part.program, self.state, self.part.backend, self.arena)

    @property
    def _adds(self) -> bool:
        return self.whole.mode is Mode.ACCUMULATE

    def _run_parts(self, feeds: Mapping[Tensor, Array]) -> None:
        whole, part = self.program, self.part.program
        losses = dict(zip(whole.losses, part.losses, strict=True))
        if whole.loss is not None and part.loss is not None:
            losses[whole.loss] = part.loss
        for tensor in losses:
            self.arrays[tensor].fill(0)
        for number in range(self.parts):
            self.state.set_part(number)
            self.part.run(self._feeds_of(number, feeds))
            samples = slice(number * part.batch_size, (number + 1) * part.batch_size)
            for mine, its in zip([*whole.outputs, *whole.extra], [*part.outputs, *part.extra], strict=True):
                np.copyto(self.arrays[mine][samples], self.part[its])
            for mine, its in losses.items():
                self.arrays[mine] += self.part[its] * np.float32(self._share)

    def _feeds_of(self, number: int, feeds: Mapping[Tensor, Array]) -> dict[Tensor, Array]:
        return {self.inner[tensor]: self._of(number, tensor, array) for tensor, array in feeds.items()}

    def _of(self, number: int, tensor: Tensor, array: Array) -> Array:
        """What belongs to a part; all of it where it holds no samples."""
        its = self.inner[tensor]
        if its.shape == tensor.shape:
            return array
        return array[number * its.shape[0] : (number + 1) * its.shape[0]]

    def _accumulators(self) -> list[tuple[StateKey, Array]]:
        return [(key, array) for key, array in self.state.arrays.items() if key.kind == "gradient"]


class DividedExecutor(PartsExecutor):
    """A training step in parts: their gradients are added up, then the weights move once."""

    def __init__(
        self, whole: Program, part: Program, update: Program, state: State, backend: Backend, arena: Array | None = None
    ) -> None:  # fmt: skip
        super().__init__(whole, part, state, backend, arena)
        graph = self.program.graph
        graph.nodes = [*graph.nodes, *update.graph.nodes]
        self.update = Executor(update, state, backend)
        self.engines.update(self.update.engines)
        self.bound += self.update.bound

    def run(self, feeds: Mapping[Tensor, Array], undisturbed: Undisturbed | None = None) -> None:
        """Gradients of all parts are added up before the weights move; those that wait for an update go on waiting."""
        waiting = {key: sums.copy() for key, sums in self._accumulators() if sums.any()}
        with Undisturbed() as restoring:
            try:
                for key in waiting:
                    self.state.arrays[key].fill(0)
                self._run_parts(feeds)
                if undisturbed is not None:
                    undisturbed.begin()
                self.update.run({})
            finally:
                restoring.begin()
                for key, sums in self._accumulators():
                    np.copyto(sums, waiting.get(key, 0))

    def rebound(self) -> DividedExecutor:
        """The same programs bound to the arrays that the state has now."""
        part, update = self.part.program, self.update.program
        return DividedExecutor(self.whole, part, update, self.state, self.part.backend, self.arena)


def executor_of(
    program: Program, state: State, backend: Backend | None = None, arena: Array | None = None
) -> Executor:
    """What runs the program: whole, or in the parts that its file was made for."""
    if program.part is None:
        return Executor(program, state, backend, arena)
    backend = backend or Reference()
    if program.update is None:
        return PartsExecutor(program, program.part, state, backend, arena)
    return DividedExecutor(program, program.part, program.update, state, backend, arena)


def within_budget(  # noqa: PLR0913, PLR0917 -- what a program is compiled from and bound to
    model: Graph, config: TrainConfig, whole: Program, state: State, backend: Backend, besides: int = 0,
    arena: Array | None = None,
) -> Executor:  # fmt: skip
    """An executor of training steps that keep within the config's budget.

    `besides`: bytes that the session holds otherwise. Where there is an arena already, the step is to do with it.
    """
    assert config.memory_budget is not None
    engine_bytes = _engine_bytes(whole, state, backend) + besides
    if arena is not None and whole.arena_bytes <= arena.nbytes:
        return executor_of(whole, state, backend, arena)
    if arena is not None or whole.step_bytes + engine_bytes > parse_bytes(config.memory_budget):
        whole = whole.in_one_lane()
        engine_bytes = _engine_bytes(whole, state, backend) + besides
    waiting = sum(array.nbytes for key, array in state.arrays.items() if key.kind == "gradient")
    fit = _fit_arena(model, config, whole, backend, engine_bytes, arena, waiting)
    if fit is None:
        return executor_of(whole, state, backend, arena)
    if fit.update is None:
        return Executor(fit.program, state, backend, arena)
    return DividedExecutor(whole, fit.program, fit.update, state, backend, arena)


def _engine_bytes(program: Program, state: State, backend: Backend) -> int:
    """Foreseen: the program is bound to memory that is none."""
    return executor_of(program, state, backend, untouched(program.arena_bytes)).engine_bytes


def _fit_arena(  # noqa: PLR0913, PLR0917 -- what a program is compiled from and bound to
    model: Graph, config: TrainConfig, whole: Program, backend: Backend, engine_bytes: int, arena: Array | None,
    waiting: int,
) -> Fit | None:  # fmt: skip
    """Within the arena that there is, and the sums of gradients that there are, if that can be; else beside it."""
    if arena is None or config.memory_budget is None:
        return fit_budget(model, config, whole, backend, engine_bytes)
    least = whole.step_bytes - whole.arena_bytes + arena.nbytes + engine_bytes
    for most in (least + waiting, least):
        with suppress(ConfigError):
            tight = config.replace(memory_budget=min(most, parse_bytes(config.memory_budget)))
            fit = fit_budget(model, tight, whole, backend, engine_bytes)
            if fit is not None and fit.program.arena_bytes <= arena.nbytes:
                return fit
    return fit_budget(model, config, whole, backend, engine_bytes + arena.nbytes)


def keeping(whole: Program, state: State, backend: Backend, arena: Array) -> Executor:
    """An executor that takes the batch at once, as results are kept of it; in the arena that there is, or beside it."""
    program = whole if whole.part is not None else lessened(whole, arena.nbytes)
    return executor_of(program if program.arena_bytes <= arena.nbytes else whole, state, backend, arena)


def in_arena(
    model: Graph, config: TrainConfig, whole: Program, state: State, backend: Backend, arena: Array
) -> Executor | None:
    """An executor of a program that updates nothing, in the arena that there is; None where it needs another."""
    program = fit_arena(model, config, whole, backend, arena.nbytes)
    if program is None:
        return None
    if program.batch_size == whole.batch_size:
        return executor_of(program, state, backend, arena)
    return PartsExecutor(whole, program, state, backend, arena)
