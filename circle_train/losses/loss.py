"""What losses share: reduction, the check of targets, sums of losses."""

from __future__ import annotations

import enum
from typing import ClassVar

import numpy as np

from circle_train.errors import ConfigError
from circle_train.ir import DType, Graph, Tensor, TensorType
from circle_train.ir.tensor_type import Array
from circle_train.kinds import is_number, refuse_misfits
from circle_train.losses.symbol import Symbol
from circle_train.record import record


class Reduction(enum.Enum):
    """How the losses of the items become one number. An item is a sample, or a position that has a class."""

    MEAN = "mean"
    """The mean over the items; where they are weighted, their sum by the sum of the weights."""
    SUM = "sum"
    """The sum over the items, as ONERT and Keras have it: a regression's sample counts by its mean."""
    SUM_ELEMENTS = "sum_elements"
    """The sum over every element, as PyTorch and ONNX Runtime understand a sum."""
    NONE = "none"
    """Each item's loss is reported; training minimises their sum."""


@record
class Loss:
    """Base: `values` adds the nodes of the formula; the rest is common to all losses.

    Losses add up and scale: `0.4 * MeanSquaredError() + 0.6 * MeanAbsoluteError()` is a loss. A class of one's own
    defines `values` or the whole `__call__`; a file holds the graph that it traces.
    """

    reduction: Reduction | str = Reduction.MEAN
    """ "mean" or "sum" of the samples' losses; "none" where the loss is only read."""
    elementwise: ClassVar[bool] = False
    """Whether `values` gives a number for each element of the output, rather than for each item."""

    def __post_init__(self) -> None:
        try:
            object.__setattr__(self, "reduction", Reduction(self.reduction))
        except ValueError:
            expected = ", ".join(f"'{known.value}'" for known in Reduction)
            raise ConfigError(
                f"{type(self).__name__}: reduction is {self.reduction!r}, expected one of {expected}"
            ) from None
        refuse_misfits(self)

    def values(self, output: Symbol, target: Symbol) -> tuple[Symbol, Symbol | None]:
        """The unreduced losses, weighted; and the weights where they are not all one."""
        raise TypeError(f"{type(self).__name__} defines no values")

    def target_of(self, output: Tensor) -> Tensor:
        """The labels of an output, which leave open what it leaves open."""
        signature = output.shape_signature
        is_open = signature is not None and len(signature) == output.type.rank
        open_type = self.target_type(output.type.with_shape(signature)) if is_open and signature else None
        target = Tensor(f"target({output.name})", self.target_type(output.type))
        target.shape_signature = None if open_type is None else open_type.shape
        return target

    def target_type(self, output: TensorType) -> TensorType:
        """What the labels of this output must look like."""
        if not output.dtype.is_float:
            raise ConfigError(
                f"{type(self).__name__}: the output is {output}, expected floats; the last operators of an "
                "integer model become float by model.with_float_head(n), or circle-train convert --float-head n"
            )
        return TensorType(DType.FLOAT32, output.shape)

    def check_target(self, target: Array, output: TensorType) -> None:
        """Refuse labels that no output of this type can be trained on."""

    def look_at(self, output: Tensor, values: Array) -> None:
        """Warn where the first batch's values are not what the loss takes them for."""

    def weight_of(self, target: Array, classes: int) -> float | None:
        """What a batch with these labels counts in a mean over batches; None: its samples.

        The mean of a weighted loss is one over weights, so that the batches' means are weighted by theirs.
        """
        return None

    @property
    def ignored(self) -> int | None:
        """The label of items that do not count."""
        return None

    def __call__(self, output: Symbol, target: Symbol) -> Symbol:
        """The reduced loss."""
        values, weights = self.values(output, target)
        if self.elementwise and self.reduction is not Reduction.SUM_ELEMENTS:
            values = values.mean(range(1, len(values.shape)))
        if self.reduction is Reduction.NONE:
            return values
        if self.reduction is not Reduction.MEAN:
            return values.sum()
        if weights is None:
            return values.mean()
        return values.sum() / weights.sum().maximum(float(np.finfo(np.float32).tiny))

    def add_to(self, graph: Graph, output: Tensor, target: Tensor) -> Tensor:
        """Append the loss's nodes; the reduced loss."""
        return self(Symbol(graph, output).as_float(), Symbol(graph, target)).tensor

    @property
    def summands(self) -> tuple[tuple[float, Loss], ...]:
        """Factors and losses that add up to this one."""
        return ((1.0, self),)

    def __mul__(self, factor: float) -> Sum:
        return Sum(terms=tuple((weight * float(factor), loss) for weight, loss in self.summands))

    __rmul__ = __mul__

    def __truediv__(self, divisor: float) -> Sum:
        return self * (1 / divisor)

    def __neg__(self) -> Sum:
        return self * -1.0

    def __add__(self, other: Loss) -> Sum:
        if not isinstance(other, Loss):
            return NotImplemented
        return Sum(terms=self.summands + other.summands)

    def __radd__(self, nothing: float) -> Loss:
        """sum([loss, …]) begins with 0."""
        return self if nothing == 0 else NotImplemented

    def __sub__(self, other: Loss) -> Sum:
        return self + -other if isinstance(other, Loss) else NotImplemented

    def _require(self, name: str, holds: bool, expected: str) -> None:
        """Refuse a setting, naming it."""
        if not holds:
            raise ConfigError(
                f"{type(self).__name__}: {name} is {getattr(self, name)!r}, expected {expected}"
            )


@record
class Sum(Loss):
    """A weighted sum of losses of the same output and target; each term is reduced in its own way."""

    terms: tuple[tuple[float, Loss], ...] = ()
    """Pairs of a factor and a loss."""

    def __post_init__(self) -> None:
        super().__post_init__()
        are_pairs = all(
            isinstance(term, tuple) and len(term) == 2 and is_number(term[0]) and isinstance(term[1], Loss)
            for term in self.terms
        )
        self._require("terms", bool(self.terms) and are_pairs, "pairs of a factor and a loss")

    def __call__(self, output: Symbol, target: Symbol) -> Symbol:
        weighted = [loss(output, target) * factor for factor, loss in self.terms]
        total = weighted[0]
        for term in weighted[1:]:
            total = total + term
        return total

    def target_type(self, output: TensorType) -> TensorType:
        types = {str(loss.target_type(output)): loss.target_type(output) for _, loss in self.terms}
        if len(types) != 1:
            found = " and ".join(types)
            raise ConfigError(
                f"a sum of losses takes targets of {found}; expected losses of the same kind of target"
            )
        return next(iter(types.values()))

    def check_target(self, target: Array, output: TensorType) -> None:
        for _, loss in self.terms:
            loss.check_target(target, output)

    def look_at(self, output: Tensor, values: Array) -> None:
        for _, loss in self.terms:
            loss.look_at(output, values)

    def weight_of(self, target: Array, classes: int) -> float | None:
        """That of the terms where they agree."""
        found = {loss.weight_of(target, classes) for _, loss in self.terms}
        return found.pop() if len(found) == 1 else None

    @property
    def ignored(self) -> int | None:
        found = {loss.ignored for _, loss in self.terms}
        return found.pop() if len(found) == 1 else None

    @property
    def summands(self) -> tuple[tuple[float, Loss], ...]:
        return self.terms
