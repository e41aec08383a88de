"""What the way back through time needs of the way there, so that an engine keeps it instead of going twice."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from circle_train.ir import TensorType
from circle_train.ir.tensor_type import Array
from circle_train.ops.axes import Mixes
from circle_train.ops.base import Example, Op, register
from circle_train.ops.internal.sequence.operators import OverSequence, SequenceGru, SequenceLstm
from circle_train.ops.layers.gru import Gru
from circle_train.ops.layers.lstm import Lstm, UnidirectionalSequenceLstm
from circle_train.ops.layers.recurrent import Recurrent, Swept
from circle_train.record import record


@register("TAPE", internal=True)
@record
class Tape(Op):
    """Of one direction of a recurrent operator, step by step as x lies: the gates' values, what its cell remembers besides
    (an LSTM's cell state, a GRU's R h + b of the candidate, an RNN's nothing), and h as the step found it.

    Gates are i, f, g, o; z, r, n; or the only one.
    """

    of: Swept = UnidirectionalSequenceLstm()
    direction: int = 0

    axes = Mixes("gates stand before samples and steps")

    def infer(self, *values: TensorType | None) -> Sequence[TensorType]:
        named = self.named(values)
        x = values[0]
        assert x is not None
        units = self.units(named)
        rows = (*x.shape[:2], units)
        memory = (*x.shape[:2], units if self.gates > 1 else 0)
        return [TensorType(x.dtype, shape) for shape in ((self.gates, *rows), memory, rows)]

    def named(self, values: Sequence[Any]) -> dict[str, Any]:
        """The operator's operands by name; the last ones may be missing."""
        return dict(zip((spec.name for spec in self.of.inputs), self.of.pad(values), strict=True))

    def units(self, named: dict[str, Any]) -> int:
        """How many a gate has."""
        if isinstance(self.of, Recurrent):
            return self.of.units(self.of.split(named)[self.direction])
        return int(named["r"].shape[2])

    @property
    def gates(self) -> int:
        if isinstance(self.of, OverSequence):
            return self.of.gates
        return 4 if isinstance(self.of, Lstm) else 3 if isinstance(self.of, Gru) else 1

    def forward(self, *values: Array | None) -> list[Array]:
        named = self.named(values)
        if isinstance(self.of, OverSequence):
            tape = self.of.sweep(named)[1][self.direction][1]
            gates, cells, before = _of_sequence(self.of, sorted(tape, key=lambda entry: int(entry[0])))
            return [np.stack(gates), cells, before]
        assert isinstance(self.of, Recurrent)
        turn = slice(None, None, -1) if self.direction else slice(None)
        x = self.of.in_time(named["x"])[turn]
        ys, steps = self.of.cell(self.of.split(named)[self.direction]).run(x)
        gates, cells, before = _of_layer(self.of, ys, steps)
        rows = [self.of.in_time(part[turn]) for part in (*gates, cells, before)]
        return [np.stack(rows[: self.gates]), *rows[self.gates :]]

    @classmethod
    def examples(cls) -> Iterable[Example]:
        for of in (UnidirectionalSequenceLstm, Gru, SequenceLstm, SequenceGru):
            example = next(iter(of.examples()))
            assert isinstance(example.op, Swept)
            yield Example(cls(example.op), example.inputs, differentiable=False)


Rows = tuple[list[Array], Array, Array]
"""Gates, memory and the states before, each of all steps."""


def _of_layer(of: Recurrent, ys: Array, tape: Any) -> Rows:
    if isinstance(of, Lstm):
        gates = [np.stack([step.gates[name] for step in tape]) for name in "ifgo"]
        return gates, np.stack([step.c for step in tape]), np.stack([step.h for step in tape])
    if isinstance(of, Gru):
        before, update, reset, inner, made = (np.stack(part) for part in zip(*tape, strict=True))
        return [update, reset, made], inner, before
    return [ys], ys[..., :0], tape[:-1]


def _of_sequence(of: OverSequence, tape: Sequence[Any]) -> Rows:
    before = np.stack([entry[1] for entry in tape])
    kept = [entry[3] for entry in tape]
    if isinstance(of, SequenceLstm):
        gates = [np.stack([step[2][i] for step in kept]) for i in (0, 2, 3, 1)]
        return gates, np.stack([step[3] for step in kept]), before
    if isinstance(of, SequenceGru):
        return (
            [np.stack([step[i] for step in kept]) for i in (2, 3, 6)],
            np.stack([step[4] for step in kept]),
            before,
        )
    ys = np.stack([step[1] for step in kept])
    return [ys], ys[..., :0], before
