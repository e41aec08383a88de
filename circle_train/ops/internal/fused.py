"""Several nodes as one, for engines that compute them in one pass; in numpy they are still computed one by one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field
from typing import Any, NamedTuple

from circle_train.ir import TensorType
from circle_train.ir.tensor_type import Array
from circle_train.ops.axes import Mixes
from circle_train.ops.base import Op, register
from circle_train.record import record


class Part(NamedTuple):
    """One of the nodes: its values are numbered, the fused inputs first, then what the parts make."""

    op: Op
    inputs: tuple[int | None, ...]
    outputs: tuple[int, ...]


@register("FUSED", internal=True)
@record
class Fused(Op):
    """Nodes that `kernel` computes together.

    `roles` name for the kernel what each input is (it may be several things), `settings` hold the rest.
    """

    kernel: str
    roles: tuple[tuple[str, ...], ...]
    parts: tuple[Part, ...] = field(repr=False)
    results: tuple[int, ...]
    """The values that the others read."""
    types: tuple[TensorType, ...]
    settings: Any = None
    writes: bool = False
    """Whether it writes into its inputs (updates) instead of returning something new."""
    overwrites: tuple[int, ...] = ()
    """Inputs that the first output may overwrite."""

    axes = Mixes("it is several nodes, each with axes of its own")

    def infer(self, *values: TensorType) -> tuple[TensorType, ...]:
        return self.types

    def forward(self, *values: Array | None) -> tuple[Array, ...]:
        known: dict[int, Array | None] = dict(enumerate(values))
        for part in self.parts:
            results = part.op.compute([None if i is None else known[i] for i in part.inputs])
            known.update(zip(part.outputs, results, strict=True))
        return tuple(known[i] for i in self.results)  # type: ignore[misc]

    @property
    def mutates(self) -> bool:  # type: ignore[override]
        return self.writes

    @property
    def inplace_inputs(self) -> tuple[int, ...]:
        return self.overwrites

    def by_role(self, values: Sequence[Any]) -> dict[str, Any]:
        """The inputs' values by role."""
        return {role: value for roles, value in zip(self.roles, values, strict=True) for role in roles}

    def flops(self, inputs: Sequence[TensorType | None], outputs: Sequence[TensorType]) -> int:
        known: dict[int, TensorType | None] = dict(enumerate(inputs))
        total = 0
        for part in self.parts:
            given = [None if i is None else known[i] for i in part.inputs]
            made = part.op.infer_types(given)
            total += part.op.flops(given, made)
            known.update(zip(part.outputs, made, strict=True))
        return total
