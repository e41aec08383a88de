"""Recurrent operators that take one step: samples × features. As along time, an absent state is zeros, as after a reset."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import fields
from typing import Any

import numpy as np

from circle_train.errors import ModelError
from circle_train.ir import TensorType
from circle_train.ir.tensor_type import Array
from circle_train.ops.attributes import Activation, LSTMKernelType
from circle_train.ops.axes import Image
from circle_train.ops.base import Example, Op, random, register
from circle_train.ops.layers.lstm import NEEDED, NORMS, WEIGHTS, Lstm, weights_of
from circle_train.ops.layers.recurrence import Cell, RnnCell, sigmoid
from circle_train.ops.layers.recurrent import STATES, Recurrent, example, rnn_values, with_inputs
from circle_train.ops.window import check_floats, check_rank
from circle_train.record import record


class OneStep(Recurrent):
    """Base: a sequence of one step, without the axis of time."""

    axes = Image(STATES)

    @property
    def is_time_major(self) -> bool:
        return True

    def infer(self, *types: TensorType | None) -> Sequence[TensorType]:
        x, *weights = types
        assert x is not None
        check_rank(self.name, 2, input=x)
        (made,) = super().infer(TensorType(x.dtype, (1, *x.shape)), *weights)
        return [TensorType(made.dtype, made.shape[1:])]

    def run(self, values: dict[str, Any]) -> list[Array]:
        (ys,) = super().run({**values, "x": values["x"][None]})
        return [ys[0]]

    def back(self, dys: Sequence[Array], values: dict[str, Any]) -> dict[str, Array]:
        found = super().back([dys[0][None]], {**values, "x": values["x"][None]})
        return {**found, "x": found["x"][0]}


@register("RNN", "RNNOptions")
@with_inputs(("x", "w", "r", "b", "h"), {"x", "w", "r", "b"})
@record
class RnnStep(OneStep):
    fused_activation_function: Activation = Activation.NONE
    asymmetric_quantize_inputs: bool = False

    def cell(self, weights: dict[str, Any]) -> Cell:
        return RnnCell(weights, self.fused_activation_function)

    @classmethod
    def examples(cls) -> Iterable[Example]:
        for activation in (Activation.NONE, Activation.TANH, Activation.RELU6):
            yield example(cls(fused_activation_function=activation), random(2, 3), rnn_values(""))
        yield example(cls(), random(2, 3), rnn_values("", states=False))


@register("LSTM", "LSTMOptions")
@with_inputs(("x", *WEIGHTS, *STATES, *NORMS), {"x", *NEEDED})
@record
class LstmStep(OneStep, Lstm):
    """In its full form; the basic one is an operator of its own."""

    kernel_type: LSTMKernelType = LSTMKernelType.FULL
    asymmetric_quantize_inputs: bool = False

    def check_arity(self, inputs: Sequence[Any]) -> None:
        if self.kernel_type is LSTMKernelType.FULL:
            super().check_arity(inputs)
        else:
            BasicLstm().check_arity(inputs)

    def with_types(self, inputs: Sequence[TensorType | None], outputs: Sequence[TensorType]) -> Op:
        if self.kernel_type is LSTMKernelType.FULL:
            return self
        return BasicLstm(**{one.name: getattr(self, one.name) for one in fields(BasicLstm)})

    @classmethod
    def examples(cls) -> Iterable[Example]:
        x = random(2, 3)
        yield example(cls(), x, weights_of(""))
        yield example(cls(), x, {name: value for name, value in weights_of("").items() if name not in STATES})
        yield example(cls(), x, weights_of("", peephole=True, projection=True, norm=True))
        yield example(cls(), x, weights_of("", cifg=True))
        yield example(cls(cell_clip=0.4, proj_clip=0.3), x, weights_of("", projection=True))
        yield example(cls(Activation.RELU), x, weights_of(""))
        yield from BasicLstm.examples()


@register("LSTM:BASIC", "LSTMOptions", internal=True)
@record
class BasicLstm(Op):
    """The last output h and state c come in and go out; rows of w, over x and h, are the gates i, g, f, o.

    The third and fourth output are what w is multiplied by, and what comes of it.
    """

    fused_activation_function: Activation = Activation.TANH
    cell_clip: float = 0.0
    proj_clip: float = 0.0
    kernel_type: LSTMKernelType = LSTMKernelType.BASIC

    parameters = ("w", "b")
    axes = Image(STATES)
    together = ("x", "h", "w", "b", "c")

    @property
    def activation(self) -> Activation:
        return Activation.NONE

    def infer(
        self, x: TensorType, h: TensorType, w: TensorType, b: TensorType, c: TensorType
    ) -> Sequence[TensorType]:
        check_rank(self.name, 2, input=x, output=h, weights=w, state=c)
        check_floats(self.name, x, h, w, b, c)
        units = c.shape[1]
        if w.shape != (4 * units, x.shape[1] + units) or b.shape != (4 * units,) or h.shape[1] != units:
            raise ModelError(
                f"{self.name}: weights are {w} and {b} for an input {x}, an output {h} and a state {c}; expected four "
                "rows a unit, of as many columns as input and output have together: the file is damaged"
            )
        return [TensorType(x.dtype, (x.shape[0], size)) for size in (units, units, w.shape[1], w.shape[0])]

    def forward(self, x: Array, h: Array, w: Array, b: Array, c: Array) -> tuple[Array, ...]:
        both = np.concatenate([x, h], axis=1)
        sums = both @ w.T + b
        i, g, f, o = _gates(sums)
        state = i * g + f * c
        return o * np.tanh(state), state, both, sums

    def grads(
        self, dys: Sequence[Array], x: Array, h: Array, w: Array, b: Array, c: Array
    ) -> dict[str, Array]:
        _, state, both, sums = self.forward(x, h, w, b, c)
        i, g, f, o = _gates(sums)
        inside = np.tanh(state)
        dc = dys[1] + dys[0] * o * (1 - inside * inside)
        slopes = (g * i * (1 - i), i * (1 - g * g), c * f * (1 - f))
        parts = [*(dc * slope for slope in slopes), dys[0] * inside * o * (1 - o)]
        dz = np.concatenate(parts, axis=1) + dys[3]
        dx, dh = np.split(dz @ w + dys[2], [x.shape[1]], axis=1)
        return {"x": dx, "h": dh, "w": dz.T @ both, "b": dz.sum(0), "c": dc * f}

    def flops(self, inputs: Sequence[TensorType | None], outputs: Sequence[TensorType]) -> int:
        return 2 * outputs[2].size * outputs[3].shape[1]

    @classmethod
    def examples(cls) -> Iterable[Example]:
        weights = random(16, 7), random(16, seed=1)
        yield Example(cls(), (random(2, 3), random(2, 4), *weights, random(2, 4, seed=2)))


BasicLstm.name = LstmStep.name


def _gates(sums: Array) -> tuple[Array, ...]:
    """i, g, f and o."""
    i, g, f, o = np.split(sums, 4, axis=1)
    return sigmoid(i), np.tanh(g), sigmoid(f), sigmoid(o)
