"""TrainConfig: what to train, on which loss, by which optimizer."""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar

import numpy as np

from circle_train.errors import ConfigError
from circle_train.ir import Tensor
from circle_train.kinds import is_number, refuse_misfits
from circle_train.likeness import likeness
from circle_train.losses import Loss
from circle_train.losses.named import BY_NAME as LOSSES
from circle_train.losses.unjudged import losses_of
from circle_train.optimizers import Optimizer
from circle_train.optimizers.named import BY_NAME as OPTIMIZERS
from circle_train.record import record
from circle_train.settings.quantization import Int8

Trainable = str | int | tuple[str, int] | Sequence[int] | Sequence[str] | Callable[[str], bool]
EXPECTED_TRAINABLE = (
    "'all', 'none', ('last', n), operator indices, parameter names or patterns, or a predicate over names"
)


class BatchNormMode(enum.Enum):
    """What a batch normalisation of a converted model does in training."""

    FROZEN = "frozen"
    """Its running statistics count, and stay."""
    TRAIN = "train"
    """The batch's own statistics count, and the running ones move towards them."""


class Activations(enum.Enum):
    """What a training step computes and keeps activations in."""

    FLOAT32 = "float32"
    BFLOAT16 = "bfloat16"
    """What the backward pass reads is rounded to bfloat16 and waits in half the memory; so are the operands of products."""


Named = TypeVar("Named")


@record
class TrainConfig:
    """Settings of a training; names stand for objects with default settings.

    Example:
        >>> import circle_train as ct
        >>> ct.TrainConfig(loss="mse", optimizer=ct.optimizers.SGD(learning_rate=0.1), trainable=("last", 2)).batch_size
        32
    """

    loss: Loss | str | Sequence[Loss | str] = "mean_squared_error"
    """A loss or its name; one for all outputs, or a list with one for each."""
    optimizer: Optimizer | str = "adam"
    """An optimizer or its name."""
    batch_size: int = 32
    """Samples a step."""
    trainable: Trainable = "all"
    """ "all", "none", ("last", n), operator indices, parameter names or patterns, or a predicate over names. A name with a
    share behind it, as "conv/kernel[:0.25]", trains the weights of the first quarter of the input channels (of CONV_2D and
    FULLY_CONNECTED): only these channels wait for the backward pass, the other weights keep their bits."""
    frozen: Sequence[str] = ()
    """Names or patterns of parameters that stay, whatever `trainable` says."""
    metrics: Sequence[Any] | str = ()
    """Metrics or their names, measured beside the loss."""
    loss_weights: Sequence[float] | None = None
    """How much each output's loss counts; None: all the same."""
    epochs: int = 0
    """What a Circle+ file says; `fit(epochs=…)` decides."""
    batch_norm: BatchNormMode | str = BatchNormMode.FROZEN
    """ "frozen" or "train": whether batch normalisations take their batch's statistics."""
    dropout: bool = True
    """Whether training drops at random where the model says so; evaluation never does."""
    memory_budget: int | str | None = None
    """What training may take, in bytes or as "150MB", data, evaluation, checkpoints and exports included: results are then
    made again instead of kept, and the batch is taken in parts, as far as needed (`session.plan` says how far)."""
    activations: Activations | str = Activations.FLOAT32
    """"bfloat16": what a training step keeps for its backward pass takes half the memory, and products multiply bfloat16s.
    Weights, gradients, sums and losses stay float32, and so do evaluation, prediction and whatever is exported."""
    quantize: Int8 | None = None
    """How the model will ship in integers (`ct.Int8`): the last of its `epochs` round weights and activations as the shipped
    model does, in the scales that ship; calibrated on the data of the fit where it brings no samples."""
    extra_outputs: Sequence[str] = ()
    """Names of further tensors of the model that every step is to report, in `StepResult.extra`."""
    outputs: Sequence[str] = ()
    """Names of the model's tensors that training takes for its outputs; the model that is exported keeps its own."""

    def __post_init__(self) -> None:
        set_field = object.__setattr__
        if not isinstance(self.loss, (tuple, list)):
            set_field(self, "loss", by_name(_loss(self.loss), LOSSES, Loss, "loss"))
        else:
            set_field(self, "loss", tuple(by_name(one, LOSSES, Loss, "loss") for one in self.loss))
        set_field(self, "optimizer", by_name(self.optimizer, OPTIMIZERS, Optimizer, "optimizer"))
        is_whole = isinstance(self.batch_size, (int, np.integer)) and not isinstance(self.batch_size, bool)
        if not is_whole or self.batch_size < 1:
            raise ConfigError(f"batch_size is {self.batch_size!r}, expected a whole number from 1")
        set_field(self, "batch_size", int(self.batch_size))
        set_field(self, "trainable", normalized(self.trainable))
        set_field(self, "metrics", (self.metrics,) if isinstance(self.metrics, str) else tuple(self.metrics))
        for name in ("frozen", "extra_outputs", "outputs"):
            set_field(self, name, _names(getattr(self, name), name))
        try:
            set_field(self, "batch_norm", BatchNormMode(self.batch_norm))
        except ValueError:
            raise ConfigError(f"batch_norm is {self.batch_norm!r}, expected 'frozen' or 'train'") from None
        try:
            set_field(self, "activations", Activations(self.activations))
        except ValueError:
            raise ConfigError(
                f"activations is {self.activations!r}, expected 'float32' or 'bfloat16'"
            ) from None
        if self.quantize is not None and not isinstance(self.quantize, Int8):
            raise ConfigError(f"quantize is {self.quantize!r:.60}, expected ct.Int8(…)")
        if self.quantize is not None and not self.quantize.needs_samples:
            raise ConfigError(
                f"quantize: the scheme {self.quantize.scheme} rounds nothing that training could learn, expected int8 or "
                "int16x8; give it to session.export alone"
            )
        refuse_misfits(self)
        if self.loss_weights is not None and not all(is_number(weight) for weight in self.loss_weights):
            raise ConfigError(f"loss_weights is {self.loss_weights!r}, expected a number for each output")

    @property
    def rule(self) -> Optimizer:
        """The optimizer, which by now is an object."""
        assert isinstance(self.optimizer, Optimizer)
        return self.optimizer

    def losses_for(self, outputs: int) -> tuple[Loss, ...]:
        """One loss for each output."""
        found = self.loss if isinstance(self.loss, tuple) else (self.loss,) * outputs
        if len(found) != outputs:
            raise ConfigError(
                f"{len(found)} losses for a model of {outputs} outputs; give one, or one for each output"
            )
        return found  # type: ignore[return-value]

    def losses_on(self, outputs: Sequence[Tensor]) -> tuple[Loss, ...]:
        """The same of these outputs: one loss for all means those of floats."""
        return losses_of(self.losses_for(len(outputs)), isinstance(self.loss, Loss), outputs)

    def replace(self, **changes: Any) -> TrainConfig:
        """The same settings but for some."""
        return replace(self, **changes)


def normalized(trainable: Trainable) -> Trainable:
    """'all' | 'none' | ('last', n) | operator indices | names | a predicate; integers count as ONERT counts."""
    if isinstance(trainable, bool):
        raise ConfigError(f"trainable is {trainable}, expected {EXPECTED_TRAINABLE}")
    if isinstance(trainable, int):
        trainable = ("last", trainable)
    if callable(trainable) or trainable in ("all", "none"):
        return trainable
    if isinstance(trainable, str) and (count := _last(trainable)) is not None:
        trainable = ("last", count)
    if isinstance(trainable, (str, Mapping)):
        hint = "; a single name stands in a list" if isinstance(trainable, str) else ""
        raise ConfigError(f"trainable is {trainable!r}, expected {EXPECTED_TRAINABLE}{hint}")
    items = tuple(trainable)
    if len(items) == 2 and items[0] == "last" and isinstance(items[1], int):
        count = items[1]
        if count < -1:
            raise ConfigError(
                f"trainable is ('last', {count}), expected a count from 1, 0 for none or -1 for all"
            )
        return "all" if count == -1 else "none" if count == 0 else ("last", count)
    names = tuple(i for i in items if isinstance(i, str))
    indices = tuple(i for i in items if isinstance(i, int) and not isinstance(i, bool))
    if len(items) not in (len(names), len(indices)):
        raise ConfigError(f"trainable is {items!r}, expected {EXPECTED_TRAINABLE}")
    return names or indices


def _last(word: str) -> int | None:
    """The number of "last:3"."""
    head, _, count = word.partition(":")
    return int(count) if head == "last" and count.strip().lstrip("-").isdecimal() else None


def names_of(trainable: Trainable) -> tuple[str, ...] | None:
    """The names or patterns that the setting lists; None where it is something else."""
    items: tuple[Any, ...] = trainable if isinstance(trainable, tuple) else ()
    return tuple(items) if items and all(isinstance(i, str) for i in items) else None


def _loss(value: Any) -> Any:
    """A loss or its name; of a bare function nobody knows in which order it takes output and target."""
    if callable(value) and not isinstance(value, (Loss, type)):
        name = getattr(value, "__name__", type(value).__name__)
        raise ConfigError(
            f"loss is the function '{name}', expected a loss; wrap it in ct.losses.custom(…), "
            "which calls it with output and target in this order"
        )
    return value


def _names(value: Any, what: str) -> tuple[str, ...]:
    """A list of names as a tuple."""
    if (
        isinstance(value, str)
        or not isinstance(value, Sequence)
        or not all(isinstance(name, str) for name in value)
    ):
        raise ConfigError(f"{what} is {value!r}, expected a list of names")
    return tuple(value)


def by_name(value: Named | str, table: Mapping[str, type[Named]], base: type[Named], what: str) -> Named:
    """The object itself, or the one that goes by this name."""
    if isinstance(value, base):
        return value
    if isinstance(value, str):
        if value.lower() in table:
            return table[value.lower()]()
        hint = likeness(value.lower(), table)
        raise ConfigError(f"{what} '{value}' is unknown, expected one of {', '.join(sorted(table))}{hint}")
    raise ConfigError(
        f"{what} is {value!r}, expected a name or an object of circle_train.{base.__module__.split('.')[-1]}"
    )
