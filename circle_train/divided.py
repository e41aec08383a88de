"""An executor of training steps that takes each batch in equal parts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from circle_train.backends.base import Backend
from circle_train.errors import ConfigError
from circle_train.executor import Executor
from circle_train.ir import Graph, Tensor
from circle_train.ir.tensor_type import Array
from circle_train.train.budget import (
    parse_bytes,
    require_divisible,
    share_of_loss,
    smaller_batches,
    step_bytes,
)
from circle_train.train.compile import compile
from circle_train.train.config import TrainConfig
from circle_train.train.program import Mode, Program
from circle_train.train.state import State


class DividedExecutor(Executor):
    """Behaves as the executor of the whole batch: parts of the feeds are run one by one, then the weights move once."""

    def __init__(
        self, whole: Program, part: Program, update: Program, state: State, backend: Backend
    ) -> None:
        graph = Graph(whole.graph.name, nodes=[*part.graph.nodes, *update.graph.nodes])
        self.program = replace(whole, graph=graph, memory=part.memory, prefix=part.prefix)
        self.state, self.generation = state, state.generation
        self.part = Executor(part, state, backend)
        self.update = Executor(update, state, backend)
        self.arena = self.part.arena
        self.backend, self.lanes = backend, []
        self.engines = {**self.part.engines, **self.update.engines}
        self.bound = [*self.part.bound, *self.update.bound]
        kept = [
            *whole.outputs,
            *whole.extra,
            *whole.losses,
            *([whole.loss] if whole.loss is not None else []),
        ]
        self.arrays: dict[Tensor, Array] = {t: np.zeros(t.shape, t.dtype.numpy) for t in dict.fromkeys(kept)}
        self._share = part.share

    def run(self, feeds: Mapping[Tensor, Array]) -> None:
        """Gradients of all parts are added up before the weights move."""
        whole, part = self.program, self.part.program
        for array in self._accumulators():
            array.fill(0)
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
        self.update.run({})

    def _accumulators(self) -> list[Array]:
        return [array for key, array in self.state.arrays.items() if key.kind == "gradient"]


def within_budget(
    model: Graph, config: TrainConfig, whole: Program, backend: Any
) -> tuple[Program, Program] | None:
    """The programs of a part of the batch and of the update that fit the budget; None if the whole batch fits."""
    assert config.memory_budget is not None
    budget = parse_bytes(config.memory_budget)
    least = step_bytes(whole, accumulates=False)
    if least <= budget:
        return None
    batch = whole.batch_size
    forward = whole.operators[: whole.forward_nodes]
    require_divisible(config, whole.inputs, forward, batch)
    update = compile(model, config, Mode.UPDATE, batch, backend)
    slots = step_bytes(update, accumulates=False) - update.arena_bytes
    for samples in smaller_batches(batch):
        share = share_of_loss(config, len(whole.outputs), batch // samples)
        part = compile(model, config, Mode.ACCUMULATE, samples, backend, share)
        nbytes = part.arena_bytes + slots + sum(p.tensor.type.nbytes for p in part.trained)
        least = min(least, nbytes)
        if nbytes <= budget:
            return part, update
    raise ConfigError(
        f"memory_budget is {config.memory_budget!r}, but a step needs {least / 1e6:.1f} MB even when the batch of {batch} is "
        "taken sample by sample; give at least that, or train fewer parameters"
    )
