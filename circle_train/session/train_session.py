"""Sessions: a thin face over compiled programs. No arithmetic here."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from numbers import Real
from typing import Any

from circle_train import backends
from circle_train.checkpoints import by_suffix as checkpoints
from circle_train.compile.compile import compile
from circle_train.compile.prefix import Keep
from circle_train.compile.program import Mode, Program
from circle_train.data.coercion import coerce, count_samples
from circle_train.errors import ConfigError
from circle_train.fitting.history import History
from circle_train.fitting.metrics import Scores
from circle_train.ir.mapped import require_unchanged
from circle_train.ir.tensor_type import Array
from circle_train.model import Model, Source, checkpoint_of, load
from circle_train.runtime.divided import within_budget
from circle_train.runtime.executor import Executor
from circle_train.runtime.guard import unspoiled
from circle_train.runtime.kept import Samples
from circle_train.runtime.properties import Properties
from circle_train.runtime.state import State
from circle_train.runtime.weights import Parameters
from circle_train.session import fit as fitting
from circle_train.session import inference, keeping, phases, profiling
from circle_train.session.export import export
from circle_train.session.onert_steps import OnertSteps, Steps
from circle_train.session.plan import Plan, conversion_bytes, make_plan
from circle_train.settings.config import TrainConfig

InferenceSession = inference.InferenceSession


@dataclass
class StepResult:
    """What one batch gave: the loss before the update, metrics, and the model's outputs."""

    loss: Any
    metrics: dict[str, float] = field(default_factory=dict)
    outputs: list[Array] = field(default_factory=list)
    losses: list[Any] = field(default_factory=list)
    """One loss for each output, before weighting."""
    extra: dict[str, Array] = field(default_factory=dict)
    """What TrainConfig.extra_outputs asks for."""


class TrainSession(OnertSteps):
    """Trains a model: `fit` for whole data sets, `train_step` for one batch at a time.

    Args:
        model: a path, bytes, file object or `Model`.
        config: what and how to train; None takes the settings that the file carries (Circle+).
        seed: of the shuffle and of everything else that is random.
        threads: how many to use; None means one for each core.
        backend: "native", "reference", or "auto" for the fastest there is.

    Example:
        >>> import circle_train as ct, numpy as np
        >>> session = ct.TrainSession("tests/data/mlp.circle", ct.TrainConfig(loss="mse", batch_size=4))
        >>> x, y = np.zeros((4, 6), np.float32), np.eye(5, dtype=np.float32)[:4]
        >>> session.train_step(x, y).loss > 0
        True
    """

    def __init__(
        self,
        model: Model | Source,
        config: TrainConfig | None = None,
        *,
        seed: int = 0,
        threads: int | None = None,
        backend: str = "auto",
    ) -> None:
        self.model = load(model)
        self._config = config or self.model.training
        self.seed = seed
        self.backend = backends.choose(backend, threads)
        self._executors: dict[tuple[Mode, int, Keep | None], Executor] = {}
        self._state: State | None = None
        self.stop_training = False
        """A callback sets it to end the fit after the present epoch."""
        self.kept_bytes = 0
        """What the fit under way keeps of a frozen beginning's results."""
        self._steps = Steps()
        self._reset_is_due = False
        if (saved := checkpoint_of(model)) is not None:
            self.load_checkpoint(saved)

    @property
    def config(self) -> TrainConfig:
        """What is trained, and how."""
        return self._config or _no_config()

    @config.setter
    def config(self, value: TrainConfig) -> None:
        self._config = value

    # Preparation

    def set_trainable(self, trainable: Any, *, learning_rate: float | None = None) -> None:
        """Begin the next phase: train other weights from here on, at another rate; what was learned stays.

        The optimizer starts without memory of the phase before.
        """
        phases.begin_phase(self, trainable, learning_rate)

    def rebuild(self, config: TrainConfig, state: State | None = None) -> None:
        """Other settings, and programs made anew of them."""
        self._config, self._state = config, state
        self._executors.clear()
        self.prepare()

    def prepare(self) -> None:
        """Build the whole program now instead of at first use."""
        self._executor(Mode.TRAIN, self.config.batch_size)

    @property
    def state(self) -> State:
        """Weights, optimizer slots, step count."""
        if self._state is None:
            self.prepare()
        assert self._state is not None
        return self._state

    @property
    def program(self) -> Program:
        """The program of a full training step."""
        return self._executor(Mode.TRAIN, self.config.batch_size).program

    @cached_property
    def metrics(self) -> Scores:
        """The config's metrics, this session's own."""
        outputs = self.program.outputs
        return Scores(self.config.metrics, self.config.losses_for(len(outputs)), outputs)

    @property
    def plan(self) -> Plan:
        """What will run: operators, trained parameters, bytes by class, FLOPs."""
        executor = self._executor(Mode.TRAIN, self.config.batch_size)
        return make_plan(executor, self.model, keeping.foreseen(self))

    def profile(self, x: Any = None, y: Any = None, *, steps: int = 5) -> profiling.Profile:
        """Time training steps node by node, on this batch or on zeros; what was learned stays as it was."""
        return profiling.profile(self, x, y, steps)

    @property
    def parameters(self) -> Parameters:
        """Weights by name."""
        return self.model.parameters_of(self.state)

    @property
    def gradients(self) -> dict[str, Array]:
        """Sums of gradients by parameter name, as `train_step(accumulate=True)` makes them until a reset."""
        return self.parameters.gradients()

    @property
    def properties(self) -> Properties:
        """Numbers and strings by name that go with the checkpoint."""
        return Properties(self.state)

    @property
    def learning_rate(self) -> float:
        """Of the next update; a schedule goes on in proportion from what is set here."""
        return self.state.learning_rate * self.config.rule.factor(self.state.step)

    @learning_rate.setter
    def learning_rate(self, value: float) -> None:
        if not isinstance(value, Real) or not 0 <= value < float("inf"):
            raise ConfigError(f"learning_rate is {value!r}, expected a number from 0")
        self.state.learning_rate = float(value) / (self.config.rule.factor(self.state.step) or 1.0)

    # One batch

    def train_step(
        self, x: Any, y: Any, *, update: bool = True, accumulate: bool = False, measure: bool = True
    ) -> StepResult:
        """Train on one batch. `update=False, accumulate=True` only adds its gradients to those waiting.

        `measure=False` leaves the metrics out, for those who measure over many batches.
        """
        if accumulate:
            if self._reset_is_due:
                self.reset_gradients()
            result = self._run(Mode.ACCUMULATE, x, y, measure)
            if update:
                self.update()
            return result
        if not update:
            return self.eval_step(x, y, measure=measure)
        result = self._run(Mode.TRAIN, x, y, measure)
        self.state.step += 1
        return result

    def eval_step(self, x: Any, y: Any = None, *, measure: bool = True) -> StepResult:
        """Loss, metrics and outputs of one batch; without labels the outputs alone. Nothing changes."""
        if y is None and any(0 not in target.shape[1:] for target in self.program.targets):
            executor = self._predict(x)
            return self._result(executor, None)
        return self._run(Mode.EVALUATE, x, y, measure)

    def update(self) -> None:
        """Take an optimizer step on the accumulated gradients."""
        executor = self._executor(Mode.UPDATE, self.config.batch_size)
        self.state.require_values()
        self._set_scalars()
        executor.run({})
        self.state.step += 1

    def reset_gradients(self, *, lazy: bool = False) -> None:
        """Start accumulating anew; `lazy`: when the next gradients come, the old ones are read until then."""
        self._reset_is_due = lazy
        if lazy:
            return
        for key, array in self.state.arrays.items():
            if key.kind == "gradient":
                array.fill(0)

    # Whole data sets

    def fit(self, x: Any, y: Any = None, **options: Any) -> History:
        """Train for `epochs` over the data; see circle_train.session.fit.fit for every option."""
        return fitting.fit(self, x, y, **options)

    def evaluate(self, x: Any, y: Any = None, batch_size: int | None = None) -> dict[str, float]:
        """Mean loss and metrics over the data."""
        return fitting.evaluate(self, x, y, batch_size)

    def predict(self, x: Any, batch_size: int | None = None) -> Any:
        """Outputs for any number of samples: an array, or a list for several outputs."""
        return fitting.predict(self, x, batch_size)

    def predict_batch(self, inputs: Sequence[Array]) -> list[Array]:
        """Outputs of one batch."""
        executor = self._predict(inputs)
        return [executor[t].copy() for t in executor.program.outputs]

    # Files

    def export(self, path: str | os.PathLike[str], *, outputs: Sequence[str] | None = None) -> None:
        """Write the model with its present weights: .circle, .tflite, or .onnx if it came from ONNX.

        With `outputs`, names of any of its tensors, the file computes those and nothing else.
        """
        self.state.require_values()
        export(self.model, self.state, path, outputs)

    def export_circleplus(self, path: str | os.PathLike[str]) -> None:
        """The same with the training settings in it (Circle+)."""
        export(self.model.with_training(self.config), self.state, path)

    def save_checkpoint(self, path: str | os.PathLike[str]) -> None:
        """Write weights and optimizer state: .ckpt as ONERT does, .safetensors with everything needed to go on."""
        checkpoints.save(self, path)

    def load_checkpoint(self, path: str | os.PathLike[str]) -> None:
        """Take over a checkpoint, whole or not at all."""
        checkpoints.load(self, path)

    # Inside

    def _executor(self, mode: Mode, batch_size: int, keep: Keep | None = None) -> Executor:
        executor = self._executors.get((mode, batch_size, keep))
        if executor is not None and executor.generation == executor.state.generation:
            return executor
        if executor is not None:
            executor = self._executors[mode, batch_size, keep] = executor.rebound()
            return executor
        require_unchanged(self.model.files)
        program = compile(self.model.module.main, self.config, mode, batch_size, self.backend, keep=keep)
        if self._state is None:
            if mode is not Mode.TRAIN:
                self.prepare()
            else:
                self._state = State(program.parameters, self.config.rule.base_learning_rate)
        assert self._state is not None
        executor = self._executors[mode, batch_size, keep] = self._bind(program, mode)
        return executor

    def _bind(self, program: Program, mode: Mode) -> Executor:
        """Give a program memory; a training step keeps within its budget."""
        assert self._state is not None
        if mode is Mode.TRAIN and self.config.memory_budget is not None:
            main, besides = self.model.module.main, conversion_bytes(self.model)
            thrifty = within_budget(main, self.config, program, self._state, self.backend, besides)
            if thrifty is not None:
                return thrifty
        arena = max((e.arena for e in self._executors.values()), key=len, default=None)
        return Executor(program, self._state, self.backend, arena)

    def _predict(self, x: Any) -> Executor:
        """The forward program after a run on this batch."""
        executor = self._executor(Mode.PREDICT, count_samples(x, self.program.inputs, "x"))
        self.state.require_values()
        require_unchanged(self.model.files)
        executor.run(dict(zip(executor.program.inputs, coerce(x, executor.program.inputs, "x"), strict=True)))
        return executor

    def _run(self, mode: Mode, x: Any, y: Any, measure: bool) -> StepResult:
        """Feed, run, read."""
        kept = x if isinstance(x, Samples) else None
        count = len(kept) if kept else count_samples(x, self.program.inputs, "x")
        executor = self._executor(mode, count, kept.keep if kept else None)
        program = executor.program
        self.state.require_values()
        require_unchanged(self.model.files)
        feeds = (
            kept.feeds(executor)
            if kept
            else dict(zip(program.inputs, coerce(x, program.inputs, "x"), strict=True))
        )
        feeds.update(zip(program.targets, coerce(y, program.targets, "y"), strict=True))
        for output, target, loss in zip(
            program.outputs, program.targets, self.config.losses_for(len(program.outputs)), strict=True
        ):
            loss.check_target(feeds[target], output.type)
        if mode is Mode.TRAIN:
            self._set_scalars()
        if mode.has_backward:
            self.state.set_random(self.seed)
        with unspoiled(self.state, feeds):
            executor.run(feeds)
        self.state.passes += mode.has_backward
        return self._result(executor, [feeds[t] for t in program.targets] if measure else None)

    def _result(self, executor: Executor, targets: Sequence[Array] | None) -> StepResult:
        program = executor.program
        outputs = [executor[t].copy() for t in program.outputs]
        losses = [_number(executor[t]) for t in program.losses]
        extra = {t.name: executor[t].copy() for t in program.extra}
        loss = None if program.loss is None else _number(executor[program.loss])
        if targets is None:
            return StepResult(loss, {}, outputs, losses, extra)
        self.metrics.reset()
        self.metrics.update(outputs, targets)
        return StepResult(loss, self.metrics.result(), outputs, losses, extra)

    def _set_scalars(self) -> None:
        self.config.rule.set_scalars(self.state)


def _number(array: Array) -> Any:
    return float(array.reshape(-1)[0]) if array.size == 1 else array.copy()


def _no_config() -> TrainConfig:
    raise ConfigError(
        "the model carries no training settings and none were given; pass a TrainConfig, "
        "or add settings to the file with `circle-train plus MODEL SETTINGS.json`"
    )
