"""One step of each cell of ONNX's recurrent operators, and the way back through it.

x, h and c are batch × features; the gates' sums lie side by side, in ONNX's order. A cell gets what the inputs give to the
gates, `xw`, and keeps on its tape what the way back needs.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np

from circle_train.ir.tensor_type import Array
from circle_train.record import record

FUNCTIONS = ("Sigmoid", "Tanh", "Relu")
"""What a cell may put its sums through."""


def applied(name: str, x: Array) -> Array:
    if name == "Relu":
        return np.maximum(x, 0)
    y: Array = np.tanh(x) if name == "Tanh" else 0.5 * (1 + np.tanh(0.5 * x))
    return y


def undone(name: str, dy: Array, y: Array) -> Array:
    """dy times the derivative, from the function's value."""
    if name == "Relu":
        return np.where(y > 0, dy, 0)
    return dy * (1 - y * y) if name == "Tanh" else dy * y * (1 - y)


@record
class Weights:
    """Of one direction; w and r hold the gates' rows under each other."""

    w: Array
    r: Array
    b: Array
    """Added to what the inputs give."""
    rb: Array
    """Added to what the state gives."""
    p: Array | None = None
    """Three rows: what the cell state adds to the input, the output and the forget gate."""


class Cell(Protocol):
    """A step forward gives the new states and a tape; back, the gradients of xw, of the sums R h + rb and of the states."""

    def step(self, xw: Array, states: Sequence[Array]) -> tuple[list[Array], Any]: ...

    def back(self, dstates: Sequence[Array], tape: Any) -> tuple[Array, Array, list[Array], Array | None]: ...


@record
class Clipped:
    """What all cells have: weights, functions, and a bound for the sums, 0 being none."""

    weights: Weights
    functions: tuple[str, ...]
    clip: float = 0.0

    def bounded(self, z: Array) -> Array:
        return np.clip(z, -self.clip, self.clip) if self.clip else z

    def within(self, dz: Array, z: Array) -> Array:
        return np.where(np.abs(z) < self.clip, dz, 0) if self.clip else dz

    def recurrent(self, h: Array) -> Array:
        y: Array = h @ self.weights.r.T + self.weights.rb
        return y


@record
class RnnCell(Clipped):
    """h = f(W x + R h + b)"""

    def step(self, xw: Array, states: Sequence[Array]) -> tuple[list[Array], Any]:
        z = xw + self.recurrent(states[0])
        y = applied(self.functions[0], self.bounded(z))
        return [y], (z, y)

    def back(self, dstates: Sequence[Array], tape: Any) -> tuple[Array, Array, list[Array], None]:
        z, y = tape
        dz = self.within(undone(self.functions[0], dstates[0], y), z)
        return dz, dz, [dz @ self.weights.r], None


@record
class LstmCell(Clipped):
    """Gates i, o, f, z: c = f c + i g(z), h = o last(c), c never clipped, as onnxruntime has it; coupled, f = 1 - i."""

    coupled: bool = False

    def step(self, xw: Array, states: Sequence[Array]) -> tuple[list[Array], Any]:
        h, c = states
        p, (f, g, last) = self.weights.p, self.functions
        zi, zo, zf, zz = np.split(xw + self.recurrent(h), 4, axis=-1)
        if p is not None:
            zi, zf = zi + p[0] * c, zf + p[2] * c
        i, z = applied(f, self.bounded(zi)), applied(g, self.bounded(zz))
        forget = 1 - i if self.coupled else applied(f, self.bounded(zf))
        new = forget * c + i * z
        if p is not None:
            zo = zo + p[1] * new
        o = applied(f, self.bounded(zo))
        shown = applied(last, new)
        return [o * shown, new], (c, (zi, zo, zf, zz), (i, o, forget, z), new, shown)

    def back(self, dstates: Sequence[Array], tape: Any) -> tuple[Array, Array, list[Array], Array | None]:
        c, (zi, zo, zf, zz), (i, o, forget, z), new, shown = tape
        p, (f, g, last) = self.weights.p, self.functions
        dh, dc = dstates
        do = self.within(undone(f, dh * shown, o), zo)
        dc = dc + undone(last, dh * o, shown)
        if p is not None:
            dc = dc + do * p[1]
        dgate = dc * z - (dc * c if self.coupled else 0)
        di = self.within(undone(f, dgate, i), zi)
        df = np.zeros_like(di) if self.coupled else self.within(undone(f, dc * c, forget), zf)
        dz = self.within(undone(g, dc * i, z), zz)
        before = dc * forget
        dp = None
        if p is not None:
            before = before + di * p[0] + df * p[2]
            dp = np.stack([(di * c).sum(0), (do * new).sum(0), (df * c).sum(0)])
        sums = np.concatenate([di, do, df, dz], axis=-1)
        return sums, sums, [sums @ self.weights.r, before], dp


@record
class GruCell(Clipped):
    """Gates z, r, n: h = (1 - z) n + z h; `linear`: the reset gate scales R h + rb, else h itself."""

    linear: bool = False

    def step(self, xw: Array, states: Sequence[Array]) -> tuple[list[Array], Any]:
        (h,) = states
        units, (f, g) = h.shape[-1], self.functions
        r, rb = self.weights.r, self.weights.rb
        hidden = h @ r[: 2 * units].T + rb[: 2 * units]
        sums = xw[:, : 2 * units] + hidden
        z, reset = np.split(applied(f, self.bounded(sums)), 2, axis=-1)
        inner = h @ r[2 * units :].T + rb[2 * units :] if self.linear else reset * h
        scaled = reset * inner if self.linear else inner @ r[2 * units :].T + rb[2 * units :]
        last = xw[:, 2 * units :] + scaled
        n = applied(g, self.bounded(last))
        return [(1 - z) * n + z * h], (h, sums, z, reset, inner, last, n)

    def back(self, dstates: Sequence[Array], tape: Any) -> tuple[Array, Array, list[Array], None]:
        h, sums, z, reset, inner, last, n = tape
        (dh,), (f, g) = dstates, self.functions
        units, r = h.shape[-1], self.weights.r
        dlast = self.within(undone(g, dh * (1 - z), n), last)
        before = dh * z
        if self.linear:
            dhidden, dreset = dlast * reset, dlast * inner
            before = before + dhidden @ r[2 * units :]
        else:
            dinner = dlast @ r[2 * units :]
            dhidden, dreset = dlast, dinner * h
            before = before + dinner * reset
        gates = np.concatenate([undone(f, dh * (h - n), z), undone(f, dreset, reset)], axis=-1)
        gates = self.within(gates, sums)
        before = before + gates @ r[: 2 * units]
        return (
            np.concatenate([gates, dlast], axis=-1),
            np.concatenate([gates, dhidden], axis=-1),
            [before],
            None,
        )
