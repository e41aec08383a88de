"""SVDF: a filter over features and time by matrices of low rank, one step at a time."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from circle_train.errors import ModelError
from circle_train.ir import TensorType
from circle_train.ir.tensor_type import Array
from circle_train.ops.attributes import Activation
from circle_train.ops.axes import Image
from circle_train.ops.base import Example, Op, random, register
from circle_train.ops.window import check_bias, check_floats, check_rank
from circle_train.record import record


@register("SVDF", "SVDFOptions")
@record
class Svdf(Op):
    """y = act(Σ over ranks and the last steps of (F x) · T + b); w: F filters × inputs, t: filters × steps.

    The state holds the filters' last values, samples × (filters · steps); an absent one is zeros.
    """

    rank: int = 1
    fused_activation_function: Activation = Activation.NONE
    asymmetric_quantize_inputs: bool = False

    parameters = ("w", "t", "b")
    axes = Image(("state",))

    def infer(
        self,
        x: TensorType,
        w: TensorType,
        t: TensorType,
        b: TensorType | None = None,
        state: TensorType | None = None,
    ) -> TensorType:
        check_rank(self.name, 2, input=x, weights=w, time_weights=t)
        check_floats(self.name, x, w, t, b, state)
        filters = w.shape[0]
        if (
            self.rank < 1
            or filters % self.rank
            or t.shape[0] != filters
            or x.shape[1] not in (-1, w.shape[1])
        ):
            raise ModelError(
                f"{self.name}: input {x}, weights {w} and time weights {t} of rank {self.rank} do not fit; "
                "expected as many columns as inputs, equal rows, and rows that are a multiple of the rank"
            )
        if state is not None and state.shape[-1] not in (-1, t.size):
            raise ModelError(f"{self.name}: the state is {state}, expected {t.size} values for every sample")
        check_bias(self.name, b, filters // self.rank)
        return TensorType(x.dtype, (x.shape[0], filters // self.rank))

    def forward(
        self, x: Array, w: Array, t: Array, b: Array | None = None, state: Array | None = None
    ) -> Array:
        y = (self.memory(x, w, t, state) * t).sum(-1).reshape(len(x), -1, self.rank).sum(-1)
        result: Array = y if b is None else y + b
        return result

    def memory(self, x: Array, w: Array, t: Array, state: Array | None) -> Array:
        """Samples × filters × steps, the newest last."""
        result = np.zeros((len(x), *t.shape), x.dtype)
        if state is not None:
            result[..., :-1] = state.reshape(-1, *t.shape)[..., 1:]
        result[..., -1] = x @ w.T
        return result

    def grad_x(self, dy: Array, w: Array, t: Array) -> Array:
        return (np.repeat(dy, self.rank, axis=1) * t[:, -1]) @ w

    def grad_w(self, dy: Array, x: Array, t: Array) -> Array:
        dw: Array = (np.repeat(dy, self.rank, axis=1) * t[:, -1]).T @ x
        return dw

    def grad_t(self, dy: Array, x: Array, w: Array, t: Array, state: Array | None) -> Array:
        spread = np.repeat(dy, self.rank, axis=1)
        dt: Array = (spread[..., None] * self.memory(x, w, t, state)).sum(0)
        return dt

    def grad_b(self, dy: Array) -> Array:
        return dy

    def grad_state(self, dy: Array, t: Array) -> Array:
        older = np.zeros((len(dy), *t.shape), dy.dtype)
        older[..., 1:] = np.repeat(dy, self.rank, axis=1)[..., None] * t[:, :-1]
        return older.reshape(len(dy), -1)

    def flops(self, inputs: Sequence[TensorType | None], outputs: Sequence[TensorType]) -> int:
        return 2 * outputs[0].shape[0] * sum(t.size for t in inputs[1:3] if t is not None)

    @classmethod
    def examples(cls) -> Iterable[Example]:
        x, w, t = random(2, 3), random(4, 3), random(4, 5)
        for rank in (1, 2):
            yield Example(cls(rank), (x, w, t, random(4 // rank), random(2, 20)))
        yield Example(cls(2), (x, w, t))
        yield Example(cls(4), (x, w, t, None, random(2, 20)))
        for activation in (Activation.RELU, Activation.RELU6, Activation.TANH):
            yield Example(cls(2, activation), (x * 2, w, t, random(2), random(2, 20)))
