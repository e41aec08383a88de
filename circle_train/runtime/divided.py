"""Training steps within a budget of memory; an executor that takes each batch in equal parts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from circle_train.backends.base import Backend
from circle_train.compile.program import Program
from circle_train.compile.thrift.budget import fit_budget
from circle_train.ir import Graph, StateKey, Tensor
from circle_train.ir.tensor_type import Array
from circle_train.runtime.executor import Executor
from circle_train.runtime.pages import untouched
from circle_train.runtime.state import State
from circle_train.runtime.undisturbed import Undisturbed
from circle_train.settings.config import TrainConfig


class DividedExecutor(Executor):
    """Behaves as the executor of the whole batch: parts of the feeds are run one by one, then the weights move once."""

    def __init__(
        self, whole: Program, part: Program, update: Program, state: State, backend: Backend
    ) -> None:
        graph = Graph(whole.graph.name, nodes=[*part.graph.nodes, *update.graph.nodes])
        self.program = replace(
            whole, graph=graph, memory=part.memory, prefix=part.prefix, repeats=part.repeats
        )
        self.whole = whole
        self.state, self.generation = state, state.generation
        self.part = Executor(part, state, backend)
        self.update = Executor(update, state, backend)
        self.arena = self.part.arena
        self.backend, self.lanes = backend, []
        twins = dict(zip(part.operators[: part.forward_nodes], whole.operators, strict=False))
        engines = {twins.get(node, node): engine for node, engine in self.part.engines.items()}
        self.engines = {**engines, **self.update.engines}
        self.bound = [*self.part.bound, *self.update.bound]
        kept = [
            *whole.outputs,
            *whole.extra,
            *whole.losses,
            *([whole.loss] if whole.loss is not None else []),
        ]
        self.arrays: dict[Tensor, Array] = {t: np.zeros(t.shape, t.dtype.numpy) for t in dict.fromkeys(kept)}
        self._share = part.share
        self.parts = whole.batch_size // part.batch_size

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

    def _run_parts(self, feeds: Mapping[Tensor, Array]) -> None:
        whole, part = self.program, self.part.program
        assert whole.loss is not None and part.loss is not None
        losses = {whole.loss: part.loss, **dict(zip(whole.losses, part.losses, strict=True))}
        for tensor in losses:
            self.arrays[tensor].fill(0)
        inner = dict(zip([*whole.inputs, *whole.targets], [*part.inputs, *part.targets], strict=True))
        for start in range(0, whole.batch_size, part.batch_size):
            samples = slice(start, start + part.batch_size)
            self.part.run({inner[tensor]: array[samples] for tensor, array in feeds.items()})
            for mine, its in zip([*whole.outputs, *whole.extra], [*part.outputs, *part.extra], strict=True):
                np.copyto(self.arrays[mine][samples], self.part[its])
            for mine, its in losses.items():
                self.arrays[mine] += self.part[its] * np.float32(self._share)

    def rebound(self) -> DividedExecutor:
        """The same programs bound to the arrays that the state has now."""
        return DividedExecutor(self.whole, self.part.program, self.update.program, self.state, self.backend)

    def _accumulators(self) -> list[tuple[StateKey, Array]]:
        return [(key, array) for key, array in self.state.arrays.items() if key.kind == "gradient"]


def within_budget(
    model: Graph, config: TrainConfig, whole: Program, state: State, backend: Backend, besides: int = 0
) -> Executor | None:
    """An executor of training steps that keep within the config's budget; None if the program does as it is.

    `besides`: bytes that the session holds otherwise.
    """
    nowhere = untouched(whole.arena_bytes)
    engine_bytes = Executor(whole, state, backend, nowhere).engine_bytes + besides
    fit = fit_budget(model, config, whole, backend, engine_bytes)
    if fit is None:
        return None
    if fit.update is None:
        return Executor(fit.program, state, backend)
    return DividedExecutor(whole, fit.program, fit.update, state, backend)
