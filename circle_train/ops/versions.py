"""Operator versions that runtimes ask for, for operators that we add; loaded operators keep theirs.

TFLite raises an operator's version when it learns a type or an option; an interpreter refuses a version that
it does not know, and older ones run a file only if its versions are no higher than needed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import field

from circle_train.ir import DType, Node, Tensor
from circle_train.record import record

Feature = Callable[[Node, Sequence[Tensor]], int]
"""The version that a node needs for an option or a shape; also given its inputs that are there."""

INT8 = {DType.INT8: 2}
INT8_INT16 = {DType.INT8: 2, DType.INT16: 3}
BOTH_2 = {DType.INT8: 2, DType.INT16: 2}
SMALL = frozenset({DType.BOOL, DType.INT8, DType.UINT8})
"""Without a scale; with one most operators take bytes."""
SHORT = SMALL | {DType.INT16}
SHORT_OR_LONG = SHORT | {DType.INT64}


@record
class Versions:
    """The versions that brought element types (1 for those not named) and other features."""

    types: Mapping[DType, int] = field(default_factory=dict)
    features: tuple[Feature, ...] = ()
    subject: int = 0
    """The input whose element type counts."""

    def needed(self, node: Node) -> int:
        """The lowest version of the operator that has what this node uses."""
        inputs = [tensor for tensor in node.inputs if tensor is not None]
        of_type = self.types.get(inputs[self.subject].dtype, 1) if self.subject < len(inputs) else 1
        return max([of_type, *(feature(node, inputs) for feature in self.features)])


def when(version: int, is_used: Callable[[Node, Sequence[Tensor]], bool]) -> Feature:
    return lambda node, inputs: version if is_used(node, inputs) else 1


def rank_above(limit: int, version: int) -> Feature:
    return when(version, lambda node, inputs: inputs[0].type.rank > limit)


def option(version: int, *names: str) -> Feature:
    """Any of these options is set."""
    return when(version, lambda node, inputs: any(getattr(node.op, name, False) for name in names))


def broadcast_above_4(version: int) -> Feature:
    """Operands of unequal shape and more than four dimensions."""

    def is_used(node: Node, inputs: Sequence[Tensor]) -> bool:
        return len({tensor.shape for tensor in inputs}) > 1 and max(t.type.rank for t in inputs) > 4

    return when(version, is_used)


def any_type(versions: Mapping[DType, int]) -> Feature:
    """The types of inputs and outputs alike."""
    return lambda node, inputs: max(versions.get(tensor.dtype, 1) for tensor in [*inputs, *node.outputs])


def is_hybrid(node: Node, inputs: Sequence[Tensor]) -> bool:
    """Floats meet weights in integers."""
    return inputs[0].dtype is DType.FLOAT32 and inputs[1].dtype is DType.INT8


def has_scales(tensor: Tensor) -> bool:
    """Entries of an axis have scales of their own."""
    return tensor.quantization is not None and len(tensor.quantization.scale) > 1
