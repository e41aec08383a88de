"""One batch at a time: fed, run, read."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import field
from functools import cached_property
from threading import Lock
from typing import Any
from weakref import ref

from circle_train.compile.program import Mode, Program
from circle_train.data.coercion import coerce, count_samples, shapes_of
from circle_train.fitting.metrics.scores import Scores
from circle_train.ir import Tensor
from circle_train.ir.mapped import require_unchanged
from circle_train.ir.tensor_type import Array
from circle_train.losses.loss import Loss
from circle_train.passes.batch import Shapes
from circle_train.record import mutable
from circle_train.runtime.executor import Executor
from circle_train.runtime.guard import Unspoiled, is_far, require_finite_gradients
from circle_train.runtime.kept import Samples
from circle_train.runtime.pages import copies
from circle_train.runtime.undisturbed import Undisturbed
from circle_train.session import shipping
from circle_train.session.learned import Learned
from circle_train.session.turns import trains, waits

LARGE = 1 << 20
"""So many bytes of outputs are copied when somebody asks for them; fewer at once, which lets go of the step's memory."""


@mutable
class StepResult:
    """What one batch gave: the loss before the update, metrics, and the model's outputs."""

    loss: Any
    metrics: dict[str, float] = field(default_factory=dict)
    outputs: list[Array] = field(default_factory=list)
    losses: list[Any] = field(default_factory=list)
    """One loss for each output, before weighting."""
    extra: dict[str, Array] = field(default_factory=dict)
    """What TrainConfig.extra_outputs asks for."""

    @property
    def at_hand(self) -> list[Array]:
        """The outputs, valid until something else runs in the session."""
        return self.outputs


class Unread(StepResult):
    """Outputs that nobody may want, too large to be copied for that: they are where the step left them.

    They are copied when they are asked for, or before something else is written there (`State.settle`); not at all where
    the result is forgotten before.
    """

    def __init__(self, loss: Any, metrics: dict[str, float], left: list[Array], *others: Any) -> None:
        self._left: list[Array] | None = left
        self._copying = Lock()
        """Whoever runs the next step waits until they are read."""
        super().__init__(loss, metrics, [], *others)

    @property
    def outputs(self) -> list[Array]:
        """The model's outputs, copies."""
        with self._copying:
            if self._left is not None:
                self._outputs, self._left = copies(self._left), None
        return self._outputs

    @outputs.setter
    def outputs(self, outputs: list[Array]) -> None:
        self._outputs = outputs

    def __reduce__(self) -> Any:
        """A copy, or what another process is sent, is a result like any other."""
        return StepResult, (self.loss, self.metrics, self.outputs, self.losses, self.extra)

    @property
    def at_hand(self) -> list[Array]:
        left = self._left
        return self._outputs if left is None else left


class Batches(Learned):
    """Steps on single batches, each whole or not at all."""

    stop_training = False
    """A callback sets it to end the fit after the present epoch."""
    kept_bytes = 0
    """What the fit under way keeps of a frozen beginning's results."""
    _reset_is_due = False
    is_known = False
    """Whether a batch has shown what the outputs are."""

    @cached_property
    def metrics(self) -> Scores:
        """The config's metrics, this session's own."""
        outputs = self.program.outputs
        return Scores(self.config.metrics, self._losses, outputs, self._as_in_file(outputs))

    @property
    def scored(self) -> shipping.judging.Scored | None:
        """What a shipped model is measured by."""
        return shipping.judging.Scored(self.program.targets, self.metrics)

    @cached_property
    def _losses(self) -> tuple[Loss, ...]:
        """One for each output."""
        return self.config.losses_on(self.program.outputs)

    @trains
    def train_step(
        self,
        x: Any,
        y: Any,
        *,
        update: bool = True,
        accumulate: bool = False,
        measure: bool = True,
        then: Callable[[StepResult], None] | None = None,
    ) -> StepResult:
        """Train on one batch, whole or not at all. `update=False, accumulate=True` only adds its gradients to those waiting.

        `measure=False` leaves the metrics out, for those who measure over many batches. `then` is given the result of a
        step with its update, and belongs to the step: Ctrl-C comes before both or after both.
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
        return self._run(Mode.TRAIN, x, y, measure, then)

    @waits
    def eval_step(self, x: Any, y: Any = None, *, measure: bool = True) -> StepResult:
        """Loss, metrics and outputs of one batch; without labels the outputs alone. Nothing changes."""
        if y is None and any(0 not in target.shape[1:] for target in self.program.targets):
            return self._result(self._predict(x), None)
        return self._run(Mode.EVALUATE, x, y, measure)

    @trains
    def update(self) -> None:
        """Take an optimizer step on the accumulated gradients."""
        executor = self.programs.executor(Mode.UPDATE, self.config.batch_size)
        self.state.require_values()
        self.state.set_scalars(self.config.rule)
        require_finite_gradients(self.state)
        with Undisturbed() as undisturbed:
            executor.run({}, undisturbed)
            self.state.count(True, False)

    @trains
    def reset_gradients(self, *, lazy: bool = False) -> None:
        """Start accumulating anew; `lazy`: when the next gradients come, the old ones are read until then."""
        self._reset_is_due = lazy
        if lazy:
            return
        with Undisturbed() as undisturbed:
            undisturbed.begin()
            for key, array in self.state.arrays.items():
                if key.kind == "gradient":
                    array.fill(0)

    @waits
    def predict_batch(self, inputs: Sequence[Array]) -> list[Array]:
        """Outputs of one batch."""
        executor = self._predict(inputs)
        return copies([executor[t] for t in executor.program.outputs])

    def _sizes(self, x: Any) -> int | Shapes:
        """How many samples the batch holds; the shapes of its arrays where the model leaves more open than that."""
        inputs = self.programs.whole.program.inputs
        if not self.programs.has_lengths:
            return count_samples(x, inputs, "x")
        return shapes_of(x, inputs, "x")

    def _predict(self, x: Any) -> Executor:
        """The forward program after a run on this batch."""
        executor = self.programs.executor(Mode.PREDICT, self._sizes(x))
        self.state.require_values()
        require_unchanged(self.model.files)
        executor.run(dict(zip(executor.program.inputs, coerce(x, executor.program.inputs, "x"), strict=True)))
        return executor

    def _run(
        self, mode: Mode, x: Any, y: Any, measure: bool, then: Callable[[StepResult], None] | None = None
    ) -> StepResult:
        """Feed, run, count, read; what changes weights is not interrupted before it is counted."""
        kept = x if isinstance(x, Samples) else None
        sizes = len(kept) if kept else self._sizes(x)
        executor = self.programs.executor(mode, sizes, kept.keep if kept else None)
        program, state = executor.program, self.programs.state
        state.require_values()
        require_unchanged(self.model.files)
        feeds = (
            kept.feeds(executor)
            if kept
            else dict(zip(program.inputs, coerce(x, program.inputs, "x"), strict=True))
        )
        feeds.update(zip(program.targets, coerce(y, program.targets, "y"), strict=True))
        for output, target, loss in zip(program.outputs, program.targets, self._losses, strict=True):
            loss.check_target(feeds[target], output.type)
        if mode is Mode.TRAIN:
            state.set_scalars(self.config.rule)
        if mode.has_backward:
            state.set_random(self.seed)
        with Undisturbed() as undisturbed:
            with Unspoiled(state, feeds, undisturbed):
                executor.run(feeds, undisturbed)
            if mode.has_backward and program.loss is not None:
                state.runs_far = is_far(executor[program.loss])
            state.count(mode is Mode.TRAIN, mode.has_backward)
            result = self._result(executor, [feeds[t] for t in program.targets] if measure else None)
            if then is not None:
                then(result)
        self._look_at(program, result)
        return result

    def _look_at(self, program: Program, result: StepResult) -> None:
        """Let the losses say, once, what they think of the outputs."""
        if self.is_known:
            return
        self.is_known = True
        for loss, output, values in zip(
            self._losses, self._as_in_file(program.outputs), result.at_hand, strict=True
        ):
            loss.look_at(output, values)

    def _as_in_file(self, outputs: Sequence[Tensor]) -> list[Tensor]:
        """The tensors of the model, whose makers no engine has joined with others."""
        known = {tensor.name: tensor for tensor in self.model.module.main.all_tensors()}
        return [known.get(tensor.name, tensor) for tensor in outputs]

    def _result(self, executor: Executor, targets: Sequence[Array] | None) -> StepResult:
        program = executor.program
        losses = [_number(executor[t]) for t in program.losses]
        names = [t.name for t in program.extra]
        extra = dict(zip(names, copies([executor[t] for t in program.extra]), strict=True))
        loss = None if program.loss is None else _number(executor[program.loss])
        outputs = [executor[t] for t in program.outputs]
        if sum(output.nbytes for output in outputs) < LARGE or (targets is not None and self.metrics):
            result = StepResult(loss, {}, copies(outputs), losses, extra)
        else:
            result = Unread(loss, {}, outputs, losses, extra)
            executor.state.unread = ref(result)
        if targets is not None and self.metrics:
            self.metrics.reset()
            self.metrics.update(result.outputs, targets)
            result.metrics = self.metrics.result()
        return result


def _number(array: Array) -> Any:
    return float(array.item()) if array.size == 1 else copies([array])[0]
