"""Outputs of whole numbers: beside others they take no part in the loss, alone they are refused with what to do."""

from __future__ import annotations

import warnings
from collections.abc import Sequence

from circle_train.errors import ConfigError
from circle_train.ir import DType, Tensor, TensorType
from circle_train.losses.loss import Loss
from circle_train.losses.symbol import Symbol
from circle_train.record import record


@record
class Unjudged(Loss):
    """The loss of an output that has no gradient: 0, whatever is expected of it."""

    def target_type(self, output: TensorType) -> TensorType:
        return TensorType(DType.FLOAT32, output.shape)

    def __call__(self, output: Symbol, target: Symbol) -> Symbol:
        return target.sum() * 0.0


def losses_of(found: Sequence[Loss], is_one_for_all: bool, outputs: Sequence[Tensor]) -> tuple[Loss, ...]:
    """The outputs' losses; where one is given for all, it means those of floats."""
    if not is_one_for_all or not any(output.dtype.is_float for output in outputs):
        return tuple(found)
    pairs = zip(found, outputs, strict=True)
    return tuple(loss if output.dtype.is_float else Unjudged() for loss, output in pairs)


def speak_of_unjudged(losses: Sequence[Loss], outputs: Sequence[Tensor]) -> None:
    """Warn of outputs that take no part."""
    unjudged = [t for loss, t in zip(losses, outputs, strict=True) if isinstance(loss, Unjudged)]
    if unjudged:
        names = ", ".join(f"'{t.name}' ({t.type})" for t in unjudged)
        warnings.warn(
            f"output {names} is no tensor of floats and takes no part in the loss; give one loss for each output, or "
            "TrainConfig(outputs=[…]) to choose what is trained",
            stacklevel=3,
        )


def refuse_whole_numbers(outputs: Sequence[Tensor]) -> None:
    """Refuse a model of which no output is of floats, naming what could be trained instead; what stands for floats is
    refused by its loss, with another remedy."""
    if not outputs or any(output.dtype.is_float or output.quantization is not None for output in outputs):
        return
    output = outputs[0]
    last = last_floats(output)
    if last is not None:
        raise ConfigError(
            f"output '{output.name}' is {output.type}, of which there is no loss; the last tensor of floats before it is "
            f"'{last.name}' ({last.type}): TrainConfig(outputs=['{last.name}']) trains there"
        )


def last_floats(tensor: Tensor) -> Tensor | None:
    """The computed tensor of floats that lies nearest before a tensor; None where all before it is integers."""
    level, seen = [tensor], {tensor}
    while level:
        makers = [t.producer for t in level if t.producer is not None]
        level = [t for maker in makers for t in maker.inputs if t is not None and t not in seen]
        seen.update(level)
        if found := [t for t in level if t.dtype.is_float and t.producer is not None]:
            return found[0]
    return None
