"""The loops over whole data sets: fit, evaluate, predict."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields
from functools import partial
from inspect import signature
from typing import Any

import numpy as np

from circle_train.data.dataset import Dataset, Stream, check_data, order_of_epoch
from circle_train.data.opening import open_any
from circle_train.errors import ConfigError
from circle_train.fitting.average import Average
from circle_train.fitting.callbacks import Callback, Progress
from circle_train.fitting.course import Course
from circle_train.fitting.history import History
from circle_train.fitting.progress import numbers
from circle_train.likeness import likeness
from circle_train.runtime.state import State
from circle_train.session.batches import Batches, StepResult
from circle_train.session.keeping import keep_results, kept_bytes
from circle_train.session.shipping.aware import begin_rounding, begins_rounding, stop_rounding
from circle_train.settings.as_json import describe_trainable
from circle_train.settings.config import TrainConfig

LOG = logging.getLogger(__name__)


def fit(  # noqa: PLR0913 -- Keras's arguments
    session: Batches,
    x: Any,
    y: Any = None,
    *,
    epochs: int | None = None,
    validation_split: float = 0.0,
    validation_data: Any = None,
    shuffle: bool = True,
    callbacks: Iterable[Callback] | Callback = (),
    verbose: int | str = "auto",
    keep_frozen: bool | int | str = "auto",
) -> History:
    """Train for some epochs (see `TrainSession.fit`).

    What the frozen beginning of the model makes of each sample of arrays is computed in the first epoch and used again
    in the others, to the bit the same. `keep_frozen` says how much memory that may take: "auto", what the memory budget
    leaves, 512 MB without one; a number of bytes or "2GB"; False, nothing; True, whatever it takes, also where an
    engine's results depend on the batch by a rounding. What fits of them is kept.
    """
    epochs = epochs if epochs is not None else session.config.epochs or 1
    told = _listeners(callbacks)
    if epochs < 1:
        raise ConfigError(f"epochs is {epochs}, expected a whole number from 1")
    data, validation = _open(session, (x, y), validation_split, validation_data, epochs)
    _refuse_idle(told, validation is not None)
    warn_of_idleness(session)
    stop_rounding(session.programs, epochs)
    if any(getattr(callback, "restore_best", False) for callback in told):
        session.programs.reserve("best weights")
    given = data, validation
    if epochs - session.state.epoch > 1:
        data, validation = keep_results(session, data, validation, keep_frozen)
    session.kept_bytes = kept_bytes(data, validation)
    history = History()
    steps = data.steps(session.config.batch_size)
    course, left = _begin(session, [*Progress.wanted(verbose), *told, history], epochs, steps)
    for epoch in left:
        if begins_rounding(session.programs, epoch, epochs):
            data, validation = given  # what was kept are results of floats
            begin_rounding(session.programs, data)
        logs = _train_epoch(session, course, data, epoch, shuffle)
        if validation is not None:
            logs.update({f"val_{name}": value for name, value in evaluate(session, validation).items()})
        if _ends(session, course, epoch, left.stop, logs):
            break
    course.end()
    state = session.state
    state.epoch, state.position, session.stop_training = 0, 0, False
    state.course = None
    return history


def _begin(
    session: Batches, listeners: Sequence[Callback], epochs: int, steps: int | None
) -> tuple[Course, range]:
    """The course, begun or taken up where a checkpoint left it, and the epochs that are left."""
    state = session.state
    before = None if state.course is None else state.course.snapshot()
    state.course = course = Course(session, [*listeners])
    course.begin(epochs, steps)
    if before is not None:
        course.resume(before, Average(session.metrics, session.config.loss_weights))
    is_over = before is not None and session.stop_training and state.position == 0
    return course, range(epochs if is_over else state.epoch, epochs)


def _ends(session: Batches, course: Course, epoch: int, epochs: int, logs: dict[str, float]) -> bool:
    """Count an epoch and tell of it; whether somebody asks for no more."""
    session.state.epoch, session.state.position = epoch + 1, 0
    course.end_epoch(epoch, logs)
    LOG.info("epoch %d of %d: %s", epoch + 1, epochs, numbers(logs))
    return session.stop_training


def _listeners(callbacks: Any) -> tuple[Callback, ...]:
    """One or several; a class is no callback yet."""
    told = (
        tuple(callbacks)
        if isinstance(callbacks, Iterable) and not isinstance(callbacks, type)
        else (callbacks,)
    )
    for callback in told:
        if isinstance(callback, type):
            raise ConfigError(
                f"callbacks holds the class {callback.__name__}, expected an object: {callback.__name__}()"
            )
        if not isinstance(callback, Callback):
            raise ConfigError(f"callbacks holds {callback!r:.60}, expected objects of ct.callbacks")
    return told


def _refuse_idle(told: Iterable[Callback], validates: bool) -> None:
    """Who watches the validation needs one: said before the first step, not after an epoch."""
    for watcher in told:
        name = getattr(watcher, "monitor", "")
        if isinstance(name, str) and name.startswith("val_") and not validates and _must_see(watcher):
            kind = type(watcher).__name__
            raise ConfigError(
                f"{kind}: monitor '{name}' will not be measured, as nothing validates; give fit validation data, or "
                f"{kind}(monitor='loss')"
            )


def _must_see(watcher: Callback) -> bool:
    """Whether it reads what it monitors; a checkpoint of every epoch does not."""
    return getattr(watcher, "save_best_only", True)


def warn_of_idleness(session: Batches) -> None:
    """Training nothing is what somebody may want, but seldom."""
    if not any(parameter.trained or parameter.moves for parameter in session.program.parameters):
        choice = describe_choice(session.config.trainable)
        warnings.warn(f"nothing is trained: {choice} holds no parameter of the model", stacklevel=4)


def describe_choice(trainable: Any) -> str:
    """The setting as it is written."""
    if callable(trainable):
        return "the function given as trainable"
    return f"trainable '{describe_trainable(trainable)}'"


def refuse_unknown(name: str) -> None:
    """An option that fit does not have: where it belongs, or what may be meant."""
    settings = [field.name for field in fields(TrainConfig)]
    belongs = f"; it is a setting: TrainConfig({name}=…)" if name in settings else ""
    known = [name for name in signature(fit).parameters if name != "session"]
    raise ConfigError(f"fit has no option '{name}'{belongs or likeness(name, [*known, *settings])}")


def _open(
    session: Batches, given: tuple[Any, Any], split: float, validation_data: Any, epochs: int
) -> tuple[Dataset | Stream, Dataset | Stream | None]:
    """What trains and what validates, looked at before the first step."""
    program = session.program
    data: Dataset | Stream
    validation: Dataset | Stream | None
    known = session.model.description
    data, validation = open_any(*given, program.inputs, program.targets, known).split(split)
    if validation_data is not None:
        validation = open_any(*_pair(validation_data), program.inputs, program.targets, known)
    losses = session.config.losses_on(program.outputs)
    for part in (data, validation):
        if part is not None:
            check_data(part, program, losses, passes=epochs)
    return data, validation


def _train_epoch(
    session: Batches, course: Course, data: Dataset | Stream, epoch: int, shuffle: bool
) -> dict[str, float]:
    """One pass over the data, from the batch at which a checkpoint left it."""
    state = session.state
    course.begin_epoch(epoch)
    data.begin_epoch(state.epochs_begun)
    order = (
        order_of_epoch(len(data), session.seed, state.epochs_begun)
        if shuffle and isinstance(data, Dataset)
        else None
    )
    average = course.average = course.average or Average(session.metrics, session.config.loss_weights)
    for inputs, targets in data.batches(session.config.batch_size, order, state.position):
        count = partial(_count, state, average, targets)
        session.train_step(inputs, targets, measure=False, then=count)
        course.end_batch(state.position - 1)
    state.epochs_begun += 1
    return average.result()


def _count(state: State, average: Average, targets: list[Any], result: StepResult) -> None:
    state.position += 1
    outputs = result.outputs if average.metrics else result.at_hand
    average.add(result.loss, result.losses, outputs, targets)


def evaluate(session: Batches, x: Any, y: Any = None, batch_size: int | None = None) -> dict[str, float]:
    """Mean loss and metrics; nothing changes."""
    program = session.program
    data = open_any(x, y, program.inputs, program.targets, session.model.description)
    average = Average(session.metrics, session.config.loss_weights)
    for inputs, targets in data.batches(batch_size or session.config.batch_size):
        result = session.eval_step(inputs, targets, measure=False)
        outputs = result.outputs if average.metrics else result.at_hand
        average.add(result.loss, result.losses, outputs, targets)
    return average.result()


def predict(session: Batches, x: Any, batch_size: int | None = None) -> Any:
    """Outputs of every sample, in order."""
    data = open_any(x, None, session.program.inputs, [], session.model.description)
    pieces = [
        session.predict_batch(inputs) for inputs, _ in data.batches(batch_size or session.config.batch_size)
    ]
    outputs = [np.concatenate(group) for group in zip(*pieces, strict=True)]
    return outputs[0] if len(outputs) == 1 else outputs


def _pair(data: Any) -> tuple[Any, Any]:
    """(x, y), or something that gives both."""
    if isinstance(data, Mapping) and set(data) == {"x", "y"}:
        return data["x"], data["y"]
    return data if isinstance(data, tuple) and len(data) == 2 else (data, None)
