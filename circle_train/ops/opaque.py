"""Operators that we cannot run, custom ones and those without a class; they survive loading and saving."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field
from typing import Any

from circle_train.errors import UnsupportedOpError
from circle_train.ir import Graph, TensorType
from circle_train.ops.axes import Mixes
from circle_train.ops.base import Op
from circle_train.record import record


@record
class Opaque(Op):
    """One operator as its file describes it; equal when it is the same code with the same option fields."""

    code: int = 32
    """Circle's number of the operator; 32 is CUSTOM."""
    label: str = "CUSTOM"
    """The number's name, "CUSTOM:…" with the custom code, or "BUILTIN_…" where the number has no name."""
    output_types: tuple[TensorType, ...] = ()
    custom_code: str | None = None
    fields: dict[str | int, Any] = field(default_factory=dict, compare=False, repr=False)
    """The options as they lie in the file's Operator table."""
    once: Graph | None = field(default=None, compare=False, repr=False)
    """The graph that CALL_ONCE runs, before all others and only then."""

    is_runnable = False
    axes = Mixes("nothing is known of it")

    def infer_types(self, inputs: Sequence[TensorType | None]) -> tuple[TensorType, ...]:
        """What the file says, for we know no rule."""
        return self.output_types

    def check_arity(self, inputs: Sequence[Any]) -> None:
        """Any number of inputs may be right."""

    def input_name(self, index: int) -> str:
        """No name that we know."""
        return f"input {index}"

    def compute(self, inputs: Sequence[Any]) -> tuple[Any, ...]:
        raise UnsupportedOpError(
            f"operator {self.name} cannot be run: circle_train has no implementation of it"
        )


def _name(self: Opaque) -> str:
    return self.label


Opaque.name = property(_name)  # type: ignore[assignment]
"""Instances of one class bear different names, while any other operator's name is its class's."""
