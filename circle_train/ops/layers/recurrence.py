"""Cells that are applied along time, and their way back; x is time × batch × features, states batch × units.

A cell is built from its weights by name; `run` returns the outputs and a tape, `back` the gradients of the
weights, of x and of the first states, by name.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import Any, Protocol

import numpy as np

from circle_train.ir.tensor_type import Array
from circle_train.ops.attributes import Activation
from circle_train.record import mutable, record

Weights = Mapping[str, Any]
"""Arrays by name; None where an optional one is absent."""
Gradients = dict[str, Array]
VARIANCE_EPSILON = 1e-8
"""TFLite's, in the layer normalisation of LSTM gates."""


class Cell(Protocol):
    """What is common to all cells."""

    def run(self, x: Array) -> tuple[Array, Any]: ...

    def back(self, dys: Array, x: Array, tape: Any) -> Gradients: ...


def sigmoid(x: Array) -> Array:
    """1 / (1 + e^-x) without overflow."""
    y: Array = 0.5 * (1 + np.tanh(0.5 * x))
    return y


def first_state(state: Array | None, batch: int, units: int, dtype: Any) -> Array:
    """Zeros, or the given state for every sample."""
    zeros: Array = np.zeros((batch, units), dtype)
    return zeros if state is None else zeros + state


def add(gradients: Gradients, name: str, value: Array) -> None:
    """Add to a gradient that may not exist yet."""
    gradients[name] = gradients[name] + value if name in gradients else value


def recur(h: Array, r: Array) -> Array:
    """R h, where R may be given as its diagonal."""
    return h * r if r.ndim == 1 else h @ r.T


def recur_back(dz: Array, r: Array) -> Array:
    """Rᵀ dz, where R may be given as its diagonal."""
    return dz * r if r.ndim == 1 else dz @ r


def over_time(dz: Array, x: Array) -> Array:
    """The gradient of w in z = x wᵀ, over all steps and samples."""
    dw: Array = dz.reshape(-1, dz.shape[-1]).T @ x.reshape(-1, x.shape[-1])
    return dw


@record
class RnnCell:
    """h = act(W x + R h + b)"""

    weights: Weights
    act: Activation

    def run(self, x: Array) -> tuple[Array, Array]:
        w, r, b = (self.weights[name] for name in ("w", "r", "b"))
        h = first_state(self.weights["h"], x.shape[1], r.shape[0], x.dtype)
        states = [h]
        for projected in x @ w.T + b:
            h = self.act.apply(projected + h @ r.T)
            states.append(h)
        tape = np.stack(states)
        return tape[1:], tape

    def back(self, dys: Array, x: Array, tape: Array) -> Gradients:
        w, r = self.weights["w"], self.weights["r"]
        dz = np.empty_like(dys)
        dh = np.zeros_like(tape[0])
        for step in reversed(range(len(dys))):
            dz[step] = self.act.gradient(dys[step] + dh, tape[step + 1])
            dh = dz[step] @ r
        gradients = {"w": over_time(dz, x), "r": over_time(dz, tape[:-1]), "b": dz.sum((0, 1))}
        return {**gradients, "x": dz @ w, "h": dh}


@record
class GruCell:
    """Rows z, n, r: h = z h + (1 - z) tanh(W_n x + b_wn + r (R_n h + b_rn)), luci-interpreter's formula."""

    weights: Weights

    def run(self, x: Array) -> tuple[Array, list[tuple[Array, ...]]]:
        w, r, b, c = (self.weights[name] for name in ("w", "r", "b_w", "b_r"))
        h = first_state(self.weights["h"], x.shape[1], r.shape[1], x.dtype)
        units = r.shape[1]
        outputs: list[Array] = []
        tape: list[tuple[Array, ...]] = []
        for projected in x @ w.T + (0 if b is None else b):
            hidden = h @ r.T + (0 if c is None else c)
            update = sigmoid(projected[:, :units] + hidden[:, :units])
            reset = sigmoid(projected[:, 2 * units :] + hidden[:, 2 * units :])
            inner = hidden[:, units : 2 * units]
            candidate = np.tanh(projected[:, units : 2 * units] + reset * inner)
            tape.append((h, update, reset, inner, candidate))
            h = update * h + (1 - update) * candidate
            outputs.append(h)
        return np.stack(outputs), tape

    def back(self, dys: Array, x: Array, tape: list[tuple[Array, ...]]) -> Gradients:
        dx_side, dh_side = [], []
        dh = np.zeros_like(dys[0])
        for dy, (h, update, reset, inner, candidate) in zip(dys[::-1], tape[::-1], strict=True):
            dh = dh + dy
            dn = dh * (1 - update) * (1 - candidate * candidate)
            dz = dh * (h - candidate) * update * (1 - update)
            dr = dn * inner * reset * (1 - reset)
            dx_side.append(np.concatenate([dz, dn, dr], axis=1))
            dh_side.append(np.concatenate([dz, dn * reset, dr], axis=1))
            dh = dh * update + dh_side[-1] @ self.weights["r"]
        d_input, d_hidden = np.stack(dx_side[::-1]), np.stack(dh_side[::-1])
        states = np.stack([entry[0] for entry in tape])
        return {
            "w": over_time(d_input, x),
            "r": over_time(d_hidden, states),
            "b_w": d_input.sum((0, 1)),
            "b_r": d_hidden.sum((0, 1)),
            "x": d_input @ self.weights["w"],
            "h": dh,
        }


@mutable
class LstmStep:
    """What the way back needs of one step."""

    h: Array
    c_before: Array
    gates: dict[str, Array] = field(default_factory=dict)
    normal: dict[str, tuple[Array, Array]] = field(default_factory=dict)
    c: Array = field(default_factory=lambda: np.empty(0))
    inside: Array | bool = True
    """Where the cell state was not clipped."""
    activated: Array = field(default_factory=lambda: np.empty(0))
    unprojected: Array = field(default_factory=lambda: np.empty(0))
    projected_inside: Array | bool = True


@record
class LstmCell:
    """Gates i, f, g (the candidate), o, with TFLite's options; without w_i, i = 1 - f.

    Weights: w_* of x, r_* of the output, p_* peepholes, b_* biases, n_* layer normalisation, w_p and b_p the
    projection, h and c the first states.
    """

    weights: Weights
    act: Activation
    cell_clip: float = 0.0
    projection_clip: float = 0.0

    @property
    def names(self) -> str:
        return "fgo" if self.weights["w_i"] is None else "ifgo"

    def run(self, x: Array) -> tuple[Array, list[LstmStep]]:
        weights = self.weights
        units, outputs = weights["w_f"].shape[0], weights["r_f"].shape[-1]
        h = first_state(weights["h"], x.shape[1], outputs, x.dtype)
        c = first_state(weights["c"], x.shape[1], units, x.dtype)
        projected = {name: x @ weights[f"w_{name}"].T for name in self.names}
        ys, tape = [], []
        for time in range(len(x)):
            step = LstmStep(h, c)
            for name in self.names.removesuffix("o"):
                self.gate(step, name, projected[name][time], c)
            c = self.next_cell(step)
            self.gate(step, "o", projected["o"][time], c)
            h = self.output(step)
            ys.append(h)
            tape.append(step)
        return np.stack(ys), tape

    def gate(self, step: LstmStep, name: str, projected: Array, c: Array) -> None:
        """act(norm(W x + R h + p c) + b)"""
        weights = self.weights
        z = projected + recur(step.h, weights[f"r_{name}"])
        if weights.get(f"p_{name}") is not None:
            z = z + c * weights[f"p_{name}"]
        if weights.get(f"n_{name}") is not None:
            centred = z - z.mean(-1, keepdims=True)
            inverse = 1 / np.sqrt((centred * centred).mean(-1, keepdims=True) + VARIANCE_EPSILON)
            step.normal[name] = centred * inverse, inverse
            z = centred * inverse * weights[f"n_{name}"]
        if weights.get(f"b_{name}") is not None:
            z = z + weights[f"b_{name}"]
        step.gates[name] = self.act.apply(z) if name == "g" else sigmoid(z)

    def next_cell(self, step: LstmStep) -> Array:
        """f c + i g, clipped."""
        gates = step.gates
        share = gates["i"] if "i" in gates else 1 - gates["f"]
        step.c = gates["f"] * step.c_before + share * gates["g"]
        if self.cell_clip > 0:
            step.inside = np.abs(step.c) < self.cell_clip
            step.c = np.clip(step.c, -self.cell_clip, self.cell_clip)
        return step.c

    def output(self, step: LstmStep) -> Array:
        """o act(c), projected and clipped."""
        step.activated = self.act.apply(step.c)
        h = step.unprojected = step.gates["o"] * step.activated
        if self.weights["w_p"] is not None:
            h = h @ self.weights["w_p"].T
            if self.weights["b_p"] is not None:
                h = h + self.weights["b_p"]
            if self.projection_clip > 0:
                step.projected_inside = np.abs(h) < self.projection_clip
                h = np.clip(h, -self.projection_clip, self.projection_clip)
        return h

    def back(self, dys: Array, x: Array, tape: list[LstmStep]) -> Gradients:
        gradients: Gradients = {}
        dh, dc = np.zeros_like(tape[0].h), np.zeros_like(tape[0].c_before)
        dz: dict[str, list[Array]] = {name: [] for name in self.names}
        for dy, step in zip(dys[::-1], tape[::-1], strict=True):
            dm = self.back_projection(gradients, step, dy + dh)
            dc = dc + self.act.gradient(dm * step.gates["o"], step.activated)
            gate_gradients = {"o": dm * step.activated}
            dzs = {"o": self.back_gate(gradients, step, "o", gate_gradients["o"])}
            dc = (dc + self.back_peephole(gradients, step, "o", dzs["o"], step.c)) * step.inside
            gates = step.gates
            share = gates["i"] if "i" in gates else 1 - gates["f"]
            gate_gradients = {"g": dc * share, "f": dc * step.c_before, "i": dc * gates["g"]}
            if "i" not in gates:
                gate_gradients["f"] -= gate_gradients.pop("i")
            dc = dc * gates["f"]
            for name, gradient in gate_gradients.items():
                dzs[name] = self.back_gate(gradients, step, name, gradient)
                dc = dc + self.back_peephole(gradients, step, name, dzs[name], step.c_before)
            dh = sum(
                (recur_back(dzs[name], self.weights[f"r_{name}"]) for name in self.names), np.zeros_like(dh)
            )
            for name in self.names:
                dz[name].append(dzs[name])
        states = np.stack([step.h for step in tape])
        dx = np.zeros_like(x)
        for name in self.names:
            whole = np.stack(dz[name][::-1])
            gradients[f"w_{name}"] = over_time(whole, x)
            diagonal = self.weights[f"r_{name}"].ndim == 1
            gradients[f"r_{name}"] = (whole * states).sum((0, 1)) if diagonal else over_time(whole, states)
            dx += whole @ self.weights[f"w_{name}"]
        return {**gradients, "x": dx, "h": dh, "c": dc}

    def back_projection(self, gradients: Gradients, step: LstmStep, dh: Array) -> Array:
        """From the output to o act(c)."""
        projection = self.weights["w_p"]
        if projection is None:
            return dh
        dh = dh * step.projected_inside
        add(gradients, "w_p", dh.T @ step.unprojected)
        add(gradients, "b_p", dh.sum(0))
        dm: Array = dh @ projection
        return dm

    def back_gate(self, gradients: Gradients, step: LstmStep, name: str, gradient: Array) -> Array:
        """From a gate to W x + R h + p c."""
        value = step.gates[name]
        dz = self.act.gradient(gradient, value) if name == "g" else gradient * value * (1 - value)
        add(gradients, f"b_{name}", dz.sum(0))
        if name not in step.normal:
            return dz
        normal, inverse = step.normal[name]
        add(gradients, f"n_{name}", (dz * normal).sum(0))
        dn = dz * self.weights[f"n_{name}"]
        mean = dn.mean(-1, keepdims=True)
        back: Array = (dn - mean - normal * (dn * normal).mean(-1, keepdims=True)) * inverse
        return back

    def back_peephole(self, gradients: Gradients, step: LstmStep, name: str, dz: Array, c: Array) -> Array:
        """The cell state's part in a gate."""
        peephole = self.weights.get(f"p_{name}")
        if peephole is None:
            return np.zeros_like(c)
        add(gradients, f"p_{name}", (dz * c).sum(0))
        back: Array = dz * peephole
        return back
