"""Sweeps along time as calls of given extents, and what a step after step says, there and back."""

from __future__ import annotations

from typing import Any

import numpy as np
from native import struct

from circle_train.backends.native.engine import abi
from sized.call import Arrays, Call, rand, zeros

Rows = np.ndarray


def sigmoid(x: Rows) -> Rows:
    return 1 / (1 + np.exp(-x))


class Swept:
    """Operands of a sweep from the last step to the first, samples before steps, outputs two rows apart."""

    gates = 1

    def __init__(self, steps: int, samples: int, units: int) -> None:
        self.steps, self.samples, self.units = steps, samples, units
        self.sums = rand(self.gates, samples, steps, units)
        self.r = rand(self.gates, units, units, seed=1) / max(units, 1)
        self.bias = rand(self.gates, units, seed=2)
        self.h0, self.c0 = rand(samples, units, seed=3), rand(samples, units, seed=4)
        self.kept = {
            "gates": np.zeros(self.sums.shape), "c": np.zeros(self.sums.shape[1:]), "before": np.zeros(self.sums.shape[1:]),
        }  # fmt: skip
        self.ys = np.zeros((samples, steps, units))
        h, c = (state.astype(np.float64) for state in (self.h0, self.c0))
        for step in reversed(range(steps)):
            self.kept["before"][:, step] = h
            h, c = self.step(step, h, c)
            self.ys[:, step] = h
        self.h1, self.c1 = h, c

    def step(self, step: int, h: Rows, c: Rows) -> tuple[Rows, Rows]:
        raise NotImplementedError

    def step_back(self, step: int, dh: Rows, dc: Rows) -> tuple[Rows, Rows]:
        raise NotImplementedError

    def sum_of(self, gate: int, step: int, h: Rows) -> Rows:
        return self.sums[gate, :, step] + h @ self.r[gate].T.astype(np.float64) + self.bias[gate]

    def call(self, **given: Any) -> Any:
        """The structure; `given` are outputs and what else there is."""
        gates = given.pop("gates")
        doubled = given.pop("y", given.pop("dy", None))
        name = "dy" if "dh0" in given else "y"
        arrays = {f"gate{i}": gate for i, gate in enumerate(gates)} | {name: doubled}
        arrays |= {f"r{i}": r for i, r in enumerate(self.r)} | {
            f"bias{i}": b for i, b in enumerate(self.bias)
        }
        made = struct(
            "ct_recurrent_args", h0=self.h0, c0=self.c0, steps=self.steps, samples=self.samples, units=self.units,
            time_row=1, sample_row=self.steps, y_time_row=2, y_sample_row=2 * self.steps, gates=self.gates, backwards=1,
            act=abi.Act.TANH, **arrays, **given,
        )  # fmt: skip
        made._keep["whole"] = gates
        return made

    def spread(self, ys: Rows) -> Rows:
        """Every second row."""
        wide = np.full((self.samples, self.steps, 2, self.units), 7.0)
        wide[:, :, 0] = ys
        return wide

    def forward(self) -> Call:
        wants = {**self.kept, "y": self.spread(self.ys), "h1": self.h1}
        if self.gates == 4:
            wants["c1"] = self.c1
        if self.gates == 1:
            del wants["c"]
        outputs: Arrays = {name: zeros(*want.shape) + 7 for name, want in wants.items()}
        outputs["gates"] = self.sums
        return Call(lambda out: self.call(**out), outputs, wants)

    def backward(self) -> Call:
        dy, last = rand(self.samples, self.steps, self.units, seed=5), rand(self.samples, self.units, seed=6)
        self.sent = np.zeros(self.sums.shape)
        self.inner = self.kept["c"].copy()
        dh, dc = last.astype(np.float64), np.zeros(last.shape)
        for step in range(self.steps):
            dh, dc = self.step_back(step, dh + dy[:, step], dc)
        wide, before = self.spread(dy).astype(np.float32), self.kept["before"].astype(np.float32)
        outputs: Arrays = {"gates": self.kept["gates"].astype(np.float32), "dh0": zeros(*dh.shape)}
        wants = {"gates": self.sent, "dh0": dh}
        if self.gates > 1:
            outputs["c"], wants["c"] = self.kept["c"].astype(np.float32), self.inner
        return Call(lambda out: self.call(**out, dy=wide, before=before, h1=last), outputs, wants)


class Lstm(Swept):
    gates = 4

    def step(self, step: int, h: Rows, c: Rows) -> tuple[Rows, Rows]:
        i, f, g, o = (self.sum_of(gate, step, h) for gate in range(4))
        i, f, g, o = sigmoid(i), sigmoid(f), np.tanh(g), sigmoid(o)
        c = f * c + i * g
        self.kept["gates"][:, :, step], self.kept["c"][:, step] = [i, f, g, o], c
        return o * np.tanh(c), c

    def step_back(self, step: int, dh: Rows, dc: Rows) -> tuple[Rows, Rows]:
        (i, f, g, o), c = self.kept["gates"][:, :, step], self.kept["c"][:, step]
        old = self.kept["c"][:, step + 1] if step + 1 < self.steps else self.c0
        seen = np.tanh(c)
        dc = dc + dh * o * (1 - seen**2)
        sent = [dc * g * i * (1 - i), dc * old * f * (1 - f), dc * i * (1 - g**2), dh * seen * o * (1 - o)]
        self.sent[:, :, step] = sent
        return sum(d @ r for d, r in zip(sent, self.r, strict=True)), dc * f


class Gru(Swept):
    gates = 3

    def step(self, step: int, h: Rows, c: Rows) -> tuple[Rows, Rows]:
        z, r = sigmoid(self.sum_of(0, step, h)), sigmoid(self.sum_of(1, step, h))
        inner = h @ self.r[2].T.astype(np.float64) + self.bias[2]
        n = np.tanh(self.sums[2, :, step] + r * inner)
        self.kept["gates"][:, :, step], self.kept["c"][:, step] = [z, r, n], inner
        return z * h + (1 - z) * n, c

    def step_back(self, step: int, dh: Rows, dc: Rows) -> tuple[Rows, Rows]:
        (z, r, n), inner = self.kept["gates"][:, :, step], self.kept["c"][:, step]
        dn = dh * (1 - z) * (1 - n**2)
        dz, dr = dh * (self.kept["before"][:, step] - n) * z * (1 - z), dn * inner * r * (1 - r)
        self.sent[:, :, step], self.inner[:, step] = [dz, dr, dn], dn * r
        return dh * z + dz @ self.r[0] + dr @ self.r[1] + dn * r @ self.r[2], dc


class Rnn(Swept):
    def step(self, step: int, h: Rows, c: Rows) -> tuple[Rows, Rows]:
        self.kept["gates"][0, :, step] = np.tanh(self.sum_of(0, step, h))
        return self.kept["gates"][0, :, step], c

    def step_back(self, step: int, dh: Rows, dc: Rows) -> tuple[Rows, Rows]:
        self.sent[0, :, step] = dh * (1 - self.kept["gates"][0, :, step] ** 2)
        return self.sent[0, :, step] @ self.r[0], dc
