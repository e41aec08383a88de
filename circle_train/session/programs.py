"""The programs of a session: compiled when they are asked for, over one state and one arena, within its budget."""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property
from math import ceil
from typing import Any

import numpy as np

from circle_train.backends.base import Backend
from circle_train.compile.divided import compile_batch
from circle_train.compile.prefix import Keep
from circle_train.compile.program import Mode, Program
from circle_train.compile.thrift.budget import parse_bytes
from circle_train.compile.thrift.spare import spare
from circle_train.errors import ConfigError
from circle_train.ir.mapped import require_unchanged
from circle_train.ir.size import Size
from circle_train.model import Model
from circle_train.ops.open.sizes import input_sizes
from circle_train.passes.batch import Shapes
from circle_train.passes.integers.as_shipped import Rounding
from circle_train.report.besides import besides_bytes
from circle_train.runtime.divided import executor_of, in_arena, keeping, within_budget
from circle_train.runtime.executor import Executor
from circle_train.runtime.state import State
from circle_train.runtime.stored import StoredWeights
from circle_train.settings.config import TrainConfig
from circle_train.uncollected import uncollected

MOST_SIZES = 16
"""Of batches besides the config's, and of lengths that their inputs have, for which programs of one kind are kept."""
IN_INTEGERS = (Mode.PREDICT, Mode.EVALUATE)
"""What is done with a model of integers as its file does it."""


class Programs:
    """Executors by what they do with a batch, its size, and what a fit keeps."""

    def __init__(self, model: Model, config: TrainConfig | None, backend: Backend) -> None:
        self.model, self.given, self.backend = model, config, backend
        self.made: State | None = None
        """The state, once the first program is there."""
        self.stored: StoredWeights | None = None
        """Of a model that is trained on its grids, as its file would hold them."""
        self.rounding: Rounding | None = None
        """The scales that ship, once training rounds as the shipped model does."""
        self.reserved: dict[str, int] = {}
        """Bytes that the budget covers besides, by what has turned out to need them."""
        self._executors: dict[tuple[Mode, int | Shapes, Keep | None], Executor] = {}

    @property
    def config(self) -> TrainConfig:
        """What is trained, and how."""
        if self.given is None:
            raise ConfigError(
                "the model carries no training settings and none were given; pass a TrainConfig, "
                "or add settings to the file with `circle-train plus MODEL SETTINGS.json`"
            )
        return self.given

    @cached_property
    def has_lengths(self) -> bool:
        """Whether inputs leave more open than how many samples they hold, along their first axes."""
        sizes = input_sizes(self.model.module.main)
        batch = next((shape[0] for shape in sizes if shape), None)
        others = [size for shape in sizes for size in shape[1:] if isinstance(size, Size)]
        others += [shape[0] for shape in sizes if shape and isinstance(shape[0], Size)]
        return any(not isinstance(batch, Size) or size.terms != batch.terms for size in others)

    @property
    def whole(self) -> Executor:
        """Takes a full training step."""
        return self.executor(Mode.TRAIN, self.config.batch_size)

    @property
    def state(self) -> State:
        """Weights, optimizer slots, step count."""
        return self.made or self.whole.state

    @property
    def is_judged_in_integers(self) -> bool:
        """Whether evaluation computes as the exported file does, not as training does."""
        return self.rounding is None and self._stored().is_any

    def rebuild(self, config: TrainConfig, state: State | None = None) -> None:
        """Other settings, and programs made anew of them."""
        self.given, self.made, self.reserved = config, state, {}
        self._plan_anew()

    def begin_phase(self, trainable: Any, learning_rate: float | None) -> None:
        """Compile anew for this choice; weights stay, the optimizer begins without memory of the phase before."""
        old, before = self.state, self.config
        rule = before.rule if learning_rate is None else replace(before.rule, learning_rate=learning_rate)
        config = before.replace(trainable=trainable, optimizer=rule)
        try:
            self.rebuild(config)
            _take_over(self.state, old)
        except BaseException:
            self.rebuild(before, old)
            raise

    def round(self, rounding: Rounding | None) -> None:
        """From now on round as the shipped model does, or no longer; the state stays."""
        before, state = self.rounding, self.state
        try:
            self.rounding = state.rounding = rounding
            self.rebuild(self.config, state)
        except BaseException:
            self.rounding = state.rounding = before
            self.rebuild(self.config, state)
            raise

    def reserve(self, what: str) -> None:
        """From here on something holds numbers for all that is trained: a budget covers them, and the step does with less."""
        program = self.whole.program
        nbytes = sum(parameter.tensor.type.nbytes for parameter in program.trained)
        if self.config.memory_budget is None or self.reserved.get(what) == nbytes:
            return
        before, self.reserved = self.reserved, {**self.reserved, what: nbytes}
        taken = program.step_bytes + self.whole.engine_bytes + self._besides(program)
        if taken <= parse_bytes(self.config.memory_budget):
            return
        try:
            self._plan_anew()
        except ConfigError as error:
            self.reserved = before
            self._plan_anew()
            raise ConfigError(f"{what} take {nbytes / 1e6:.2f} MB: {error}") from None

    def _plan_anew(self) -> None:
        """The memory of all programs goes before there is another."""
        self._executors.clear()
        self.executor(Mode.TRAIN, self.config.batch_size)

    def executor(self, mode: Mode, sizes: int | Shapes, keep: Keep | None = None) -> Executor:
        """For so many samples, or inputs of these shapes; bound anew where the state has other arrays than before."""
        if mode is Mode.ACCUMULATE:
            self.reserve("gradients that wait")
        if mode in IN_INTEGERS and self._stored().renew():
            self._executors = {key: e for key, e in self._executors.items() if key[0] not in IN_INTEGERS}
        key = mode, sizes, keep
        executor = self._executors.pop(key, None)
        if executor is None:
            with uncollected(self.config.memory_budget is None):  # else what is dropped counts
                executor = self._made(mode, sizes, keep)
            self._make_room(mode)
        self._executors[key] = executor
        if executor.generation != executor.state.generation:
            executor = self._executors[key] = executor.rebound()
        return executor

    @property
    def arena_bytes(self) -> int:
        """Of all programs; most lie in the same arena."""
        return sum(
            arena.nbytes for arena in {id(e.arena): e.arena for e in self._executors.values()}.values()
        )

    def forget(self, mode: Mode, sizes: int | Shapes, keep: Keep | None) -> None:
        """Its memory goes."""
        self._executors.pop((mode, sizes, keep), None)

    def _stored(self) -> StoredWeights:
        """Of the present state."""
        state = self.state
        if self.stored is None or self.stored.state is not state:
            self.stored = StoredWeights(state)
        return self.stored

    def _made(self, mode: Mode, sizes: int | Shapes, keep: Keep | None) -> Executor:
        require_unchanged(self.model.files)
        stored = self._stored().weights if mode in IN_INTEGERS and self.is_judged_in_integers else ()
        program = compile_batch(
            self.model.module.main, self.config, mode, sizes, self.backend, keep=keep, rounding=self.rounding,
            stored=stored,
        )  # fmt: skip
        if mode.has_backward and self.config.memory_budget is None and program.part is None:
            program = spare(program)
        if self.made is None and mode is Mode.TRAIN:
            self.made = State(program.parameters, self.config.rule.base_learning_rate)
        return self._bind(program, self.state, keep is not None)

    def _besides(self, program: Program) -> int:
        """What the process takes besides a step."""
        return sum(besides_bytes(program, self.model, self.reserved).values())

    def _require_room(self, program: Program) -> None:
        """Refuse what neither does with the step's memory nor fits the budget beside it."""
        whole = self.whole
        taken = whole.program.step_bytes + whole.engine_bytes + self._besides(whole.program)
        needed = ceil((taken + program.arena_bytes) / 1e4) / 100
        if needed * 1e6 > parse_bytes(self.config.memory_budget or 0):
            raise ConfigError(
                f"memory_budget is {self.config.memory_budget!r}, but to {program.mode.value} {program.batch_size} samples "
                f"takes {needed:.2f} MB with the step's memory; give at least that, or fewer samples at a time"
            )

    def _make_room(self, mode: Mode) -> None:
        """Of the sizes of batches that came along, those met last stay; and the config's own."""
        others = [key for key in self._executors if key[0] is mode and key[1] != self.config.batch_size]
        for key in others[: max(len(others) - MOST_SIZES + 1, 0)]:
            del self._executors[key]

    def _bind(self, program: Program, state: State, keeps: bool) -> Executor:
        """Give a program memory; a training step keeps within its budget, and all else within the step's memory."""
        arena = max((e.arena for e in self._executors.values()), key=len, default=None)
        main = self.model.module.main
        if self.config.memory_budget is not None:
            if keeps and arena is not None:
                return keeping(program, state, self.backend, arena)
            if program.mode is Mode.TRAIN:
                besides = self._besides(program)
                return within_budget(main, self.config, program, state, self.backend, besides, arena)
            if arena is not None and program.mode is not Mode.UPDATE:
                thrifty = in_arena(main, self.config, program, state, self.backend, arena)
                if thrifty is not None:
                    return thrifty
                self._require_room(program)
        return executor_of(program, state, self.backend, arena)


def _take_over(new: State, old: State) -> None:
    """What was learned, and how many epochs and passes that took."""
    for key, array in old.arrays.items():
        if key.kind == "value" and array.flags.writeable:
            if new.is_own(key.owner):
                np.copyto(new.arrays[key], array)
            else:
                new.replace(key, array)
    new.unset &= old.unset
    new.epochs_begun, new.passes = old.epochs_begun, old.passes
    new.properties = old.properties
