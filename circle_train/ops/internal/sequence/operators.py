"""ONNX's recurrent operators over sequences of any length: one op for all steps, in one direction or both.

Operands and outputs lie as ONNX has them (layout 0): x is time × batch × features, weights begin with the axis of directions,
biases hold W's, then R's, outputs are time × directions × batch × units, and the last states directions × batch × units.
Files have no such operator; `convert/stages/lower.py` writes it by those that they have.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Sequence
from typing import Any, ClassVar

import numpy as np

from circle_train.errors import ModelError
from circle_train.ir import Node, TensorType
from circle_train.ir.tensor_type import Array
from circle_train.ops.axes import Mixes
from circle_train.ops.base import Example, random, register
from circle_train.ops.checks import same_size
from circle_train.ops.internal.sequence.cells import Cell, GruCell, LstmCell, RnnCell, Weights
from circle_train.ops.layers.recurrent import Swept, with_inputs
from circle_train.ops.window import check_floats, check_rank
from circle_train.record import record

Names = tuple[str, ...]


BEFORE_STATES = 4
"""The operand with the lengths; states come behind it."""


class Direction(enum.IntEnum):
    FORWARD = 0
    REVERSE = 1
    BIDIRECTIONAL = 2

    @property
    def backwards(self) -> tuple[bool, ...]:
        """For each direction whether it runs from the last step to the first."""
        return ((False,), (True,), (False, True))[self]


@record
class Sweeps(Mixes):
    """Step by step along the first axis; constant states of one sequence serve as many as there come to be."""

    def resized(self, node: Node, index: int, axis: int, size: int) -> dict[int, Array]:
        if not self.is_data(node, index) or axis != 1:
            return {}
        states = {
            i: t for i, t in enumerate(node.inputs) if i > BEFORE_STATES and t is not None and t.is_constant
        }
        return {
            i: np.repeat(t.data, size, axis=1)
            for i, t in states.items()
            if t.type.rank == 3 and t.shape[1] == 1
        }


@record
class OverSequence(Swept):
    """What the three have in common: a cell for each direction, applied step after step."""

    direction: Direction = Direction.FORWARD
    functions: Names = ()
    """Of all directions, one after the other."""
    clip: float = 0.0

    gates: ClassVar[int] = 1
    states: ClassVar[tuple[str, ...]] = ("h",)
    axes = Sweeps(why="a step needs the one before it")

    def cell(self, weights: Weights, functions: tuple[str, ...]) -> Cell:
        raise NotImplementedError(f"{self.name} has no cell")

    def infer(self, *types: TensorType | None) -> Sequence[TensorType]:
        x, w, r, b, lengths, *states = types
        assert x is not None and w is not None and r is not None
        check_rank(self.name, 3, x=x, w=w, r=r)
        check_floats(self.name, x, w, r, b, *states)
        steps, batch, features = x.shape
        directions, units = len(self.direction.backwards), r.shape[2]
        if not same_size(features, w.shape[2]):
            raise ModelError(
                f"{self.name}: input has {features} features, weights take {w.shape[2]} (input {x}, weights {w})"
            )
        rows = self.gates * units
        if any(not all(map(same_size, t.shape, (directions, rows))) for t in (w, r)):
            raise ModelError(
                f"{self.name}: weights are {w} and {r}, expected {directions} directions of {self.gates} gates of "
                f"{units} units"
            )
        self._check_states(batch, units, lengths, *states[: len(self.states)])
        last = TensorType(x.dtype, (directions, batch, units))
        return [TensorType(x.dtype, (steps, directions, batch, units)), *[last] * len(self.states)]

    def _check_states(
        self, batch: int, units: int, lengths: TensorType | None, *states: TensorType | None
    ) -> None:
        """Refuse what has not one entry for each sample."""
        if lengths is not None and not same_size(lengths.shape[0], batch):
            raise ModelError(f"{self.name}: lengths are {lengths}, expected one for each of {batch} samples")
        for state in states:
            if state is not None and not all(map(same_size, state.shape[1:], (batch, units))):
                raise ModelError(
                    f"{self.name}: a first state is {state}, expected {batch} samples of {units} units"
                )

    def run(self, values: dict[str, Any]) -> list[Array]:
        return self.sweep(values)[0]

    def sweep(self, values: dict[str, Any]) -> tuple[list[Array], list[tuple[Cell, list[Any]]]]:
        """The outputs, and for each direction its cell and tape in the order in which it ran."""
        x, r, lengths = values["x"], values["r"], values["lengths"]
        steps, batch, units = len(x), x.shape[1], r.shape[2]
        directions = self.direction.backwards
        y = np.zeros((steps, len(directions), batch, units), x.dtype)
        last = [np.zeros((len(directions), batch, units), x.dtype) for _ in self.states]
        tapes = []
        for number, backwards in enumerate(directions):
            weights = self.weights(number, values)
            cell, tape = self.cell(weights, self.functions_of(number)), []
            first = [values[name] for name in self.states]
            now = [np.zeros((batch, units), x.dtype) if s is None else s[number] for s in first]
            xw = x @ weights.w.T + weights.b
            for step in reversed(range(steps)) if backwards else range(steps):
                before = now
                now, kept = cell.step(xw[step], now)
                alive = None if lengths is None else (step < lengths)[:, None]
                y[step, number] = now[0] if alive is None else np.where(alive, now[0], 0)
                if alive is not None:
                    now = [np.where(alive, new, old) for new, old in zip(now, before, strict=True)]
                tape.append((step, before[0], alive, kept))
            for state, value in zip(last, now, strict=True):
                state[number] = value
            tapes.append((cell, tape))
        return [y, *last], tapes

    def weights(self, number: int, values: dict[str, Any]) -> Weights:
        """One direction's."""
        w, r, b, p = values["w"], values["r"], values["b"], values.get("p")
        rows, units = w.shape[1], r.shape[2]
        both = np.zeros(2 * rows, w.dtype) if b is None else b[number]
        peepholes = None if p is None else p[number].reshape(3, units)
        return Weights(w[number], r[number], both[:rows], both[rows:], peepholes)

    def functions_of(self, number: int) -> tuple[str, ...]:
        """One direction's."""
        count = len(self.functions) // len(self.direction.backwards)
        return self.functions[number * count :][:count]

    def back(self, dys: Sequence[Array], values: dict[str, Any]) -> dict[str, Array]:
        x, w, r = values["x"], values["w"], values["r"]
        rows, units = w.shape[1], r.shape[2]
        found = {name: np.zeros_like(values[name]) for name in ("x", "w", "r")}
        found |= {"b": np.zeros((len(w), 2 * rows), w.dtype), "p": np.zeros((len(w), 3 * units), w.dtype)}
        found |= {name: np.zeros_like(dy) for name, dy in zip(self.states, dys[1:], strict=True)}
        for number, (cell, tape) in enumerate(self.sweep(values)[1]):
            dnow = [dy[number].copy() for dy in dys[1:]]
            for step, h, alive, kept in reversed(tape):
                dnew = [dnow[0] + dys[0][step, number], *dnow[1:]]
                if alive is not None:
                    dnew = [np.where(alive, d, 0) for d in dnew]
                dsum, dhidden, before, dpeep = cell.back(dnew, kept)
                if alive is not None:
                    before = [d + np.where(alive, 0, old) for d, old in zip(before, dnow, strict=True)]
                dnow = before
                found["x"][step] += dsum @ w[number]
                found["w"][number] += dsum.T @ x[step]
                found["r"][number] += self.recurrent_gradient(dhidden, h, kept)
                found["b"][number] += np.concatenate([dsum.sum(0), dhidden.sum(0)])
                found["p"][number] += 0 if dpeep is None else dpeep.reshape(-1)
            for name, value in zip(self.states, dnow, strict=True):
                found[name][number] = value
        return found

    def recurrent_gradient(self, dhidden: Array, h: Array, kept: Any) -> Array:
        """Of R, from what its product's gradients and the state before give."""
        dr: Array = dhidden.T @ h
        return dr

    def flops(self, inputs: Sequence[TensorType | None], outputs: Sequence[TensorType]) -> int:
        x, w, r = inputs[:3]
        return 2 * x.shape[0] * x.shape[1] * (w.size + r.size) if x and w and r else 0


def values(gates: int, directions: int = 1) -> tuple[Array, Array, Array, Array]:
    """x of 5 steps, 2 samples and 3 features, and weights, for the examples."""
    units = 4
    rows = gates * units
    return (
        random(5, 2, 3),
        random(directions, rows, 3, seed=1),
        random(directions, rows, units, seed=2),
        random(directions, 2 * rows, seed=3),
    )


OPERANDS, NEEDED = ("x", "w", "r", "b", "lengths", "h"), {"x", "w", "r"}
LENGTHS = np.array([5, 3], np.int32)


@register("SEQUENCE_RNN", internal=True)
@with_inputs(OPERANDS, NEEDED)
@record
class SequenceRnn(OverSequence):
    functions: Names = ("Tanh",)

    def cell(self, weights: Weights, functions: tuple[str, ...]) -> Cell:
        return RnnCell(weights, functions, self.clip)

    @classmethod
    def examples(cls) -> Iterable[Example]:
        yield Example(cls(), values(1))
        yield Example(cls(clip=0.9), (*values(1), LENGTHS, random(1, 2, 4)))
        both = ("Tanh", "Sigmoid")
        yield Example(cls(Direction.BIDIRECTIONAL, both), (*values(1, 2), LENGTHS, random(2, 2, 4)))
        yield Example(cls(Direction.REVERSE, ("Relu",)), (*values(1)[:3], None, LENGTHS))


@register("SEQUENCE_GRU", internal=True)
@with_inputs(OPERANDS, NEEDED)
@record
class SequenceGru(OverSequence):
    """With `linear_before_reset` the reset gate scales R h + rb, else h itself."""

    functions: Names = ("Sigmoid", "Tanh")
    linear_before_reset: bool = False

    gates = 3

    def cell(self, weights: Weights, functions: tuple[str, ...]) -> Cell:
        return GruCell(weights, functions, self.clip, self.linear_before_reset)

    def recurrent_gradient(self, dhidden: Array, h: Array, kept: Any) -> Array:
        if self.linear_before_reset:
            return super().recurrent_gradient(dhidden, h, kept)
        units = h.shape[-1]
        inner = kept[4]
        return np.concatenate([dhidden[:, : 2 * units].T @ h, dhidden[:, 2 * units :].T @ inner])

    @classmethod
    def examples(cls) -> Iterable[Example]:
        yield Example(cls(), values(3))
        yield Example(cls(linear_before_reset=True, clip=0.9), (*values(3), LENGTHS, random(1, 2, 4)))
        both = ("Sigmoid", "Tanh", "Tanh", "Sigmoid")
        yield Example(cls(Direction.BIDIRECTIONAL, both), (*values(3, 2), None, random(2, 2, 4)))
        yield Example(cls(Direction.REVERSE), (*values(3)[:3], None, LENGTHS))


@register("SEQUENCE_LSTM", internal=True)
@with_inputs((*OPERANDS, "c", "p"), NEEDED)
@record
class SequenceLstm(OverSequence):
    """`coupled`: what the input gate lets in, the forget gate takes out."""

    functions: Names = ("Sigmoid", "Tanh", "Tanh")
    coupled: bool = False

    gates = 4
    states = ("h", "c")

    def cell(self, weights: Weights, functions: tuple[str, ...]) -> Cell:
        return LstmCell(weights, functions, self.clip, self.coupled)

    @classmethod
    def examples(cls) -> Iterable[Example]:
        states = (random(1, 2, 4), random(1, 2, 4, seed=1))
        yield Example(cls(), values(4))
        yield Example(cls(coupled=True, clip=0.9), (*values(4), LENGTHS, *states, random(1, 12)))
        both = ("Sigmoid", "Tanh", "Tanh", "Sigmoid", "Tanh", "Sigmoid")
        pair = (random(2, 2, 4), random(2, 2, 4, seed=1))
        yield Example(cls(Direction.BIDIRECTIONAL, both), (*values(4, 2), LENGTHS, *pair))
        yield Example(cls(Direction.REVERSE), (*values(4), None, *states, random(1, 12)))
