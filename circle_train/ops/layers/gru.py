"""The GRU operator of Circle."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from circle_train.ir import TensorType
from circle_train.ir.tensor_type import Array
from circle_train.ops.base import Example, random, register
from circle_train.ops.layers.recurrence import Cell, GruCell
from circle_train.ops.layers.recurrent import Recurrent, example, with_inputs
from circle_train.record import record


@register("GRU", "GRUOptions")
@with_inputs(("x", "r", "b_r", "w", "b_w", "h"), {"x", "r", "w"})
@record
class Gru(Recurrent):
    """Circle's: rows z, n, r; without return_sequences time comes first, and only the last output is made."""

    return_sequences: bool = False
    time_major: bool = False

    gates = 3

    @property
    def is_time_major(self) -> bool:
        return self.time_major or not self.return_sequences

    def cell(self, weights: dict[str, Any]) -> Cell:
        return GruCell(weights)

    def infer(self, *types: TensorType | None) -> Sequence[TensorType]:
        (sequence,) = super().infer(*types)
        return [sequence if self.return_sequences else TensorType(sequence.dtype, sequence.shape[1:])]

    def run(self, values: dict[str, Any]) -> list[Array]:
        (ys,) = super().run(values)
        return [ys if self.return_sequences else ys[-1]]

    def back(self, dys: Sequence[Array], values: dict[str, Any]) -> dict[str, Array]:
        if not self.return_sequences:
            whole = np.zeros((values["x"].shape[0], *dys[0].shape), dys[0].dtype)
            whole[-1] = dys[0]
            dys = [whole]
        return super().back(dys, values)

    @classmethod
    def examples(cls) -> Iterable[Example]:
        values = {"r": random(12, 4), "b_r": random(12, seed=1), "w": random(12, 3), "h": random(2, 4)}
        values["b_w"] = random(12, seed=2)
        yield example(cls(), random(5, 2, 3), values)
        yield example(cls(), random(5, 2, 3), {name: values[name] for name in "rw"})
        yield example(cls(return_sequences=True), random(2, 5, 3), values)
        yield example(cls(return_sequences=True, time_major=True), random(5, 2, 3), values)
