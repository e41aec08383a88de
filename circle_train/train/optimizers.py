"""Optimizers: each declares its slots, the numbers that change from step to step, and the update of one weight."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from math import sqrt
from typing import ClassVar

import numpy as np

from circle_train.errors import ConfigError
from circle_train.ir import TensorType
from circle_train.ir.tensor_type import Array
from circle_train.ops.base import Op, register


@dataclass(frozen=True)
class Optimizer:
    """Base: `slots` are per-weight states, zero at first; `scalars` and `update` are the whole rule.

    `scalars(learning_rate, step)` (step counts from 1) gives the float32 numbers that one step needs, computed in double;
    `update(w, g, scalars, *slots)` works in place on w and the slots.
    """

    learning_rate: float = 1e-3
    slots: ClassVar[tuple[str, ...]] = ()

    def __post_init__(self) -> None:
        _require(self, "learning_rate", 0 < self.learning_rate < float("inf"), "a positive number")

    def scalars(self, learning_rate: float, step: int) -> tuple[float, ...]:
        return (learning_rate,)

    def update(self, w: Array, g: Array, scalars: Array, *slots: Array) -> None:
        raise NotImplementedError(f"{type(self).__name__} has no update")


@dataclass(frozen=True)
class SGD(Optimizer):
    """w -= lr·g; with momentum v = momentum·v + g and w -= lr·v (nesterov: lr·(g + momentum·v)). Decay adds to g."""

    momentum: float = 0.0
    nesterov: bool = False
    weight_decay: float = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        _require(self, "momentum", 0 <= self.momentum < 1, "in [0, 1)")
        _require(self, "weight_decay", self.weight_decay >= 0, "not negative")

    @property
    def slots(self) -> tuple[str, ...]:  # type: ignore[override]
        return ("momentum",) if self.momentum else ()

    def update(self, w: Array, g: Array, scalars: Array, *slots: Array) -> None:
        if self.weight_decay:
            g = g + np.float32(self.weight_decay) * w
        if slots:
            (v,) = slots
            v *= np.float32(self.momentum)
            v += g
            g = g + np.float32(self.momentum) * v if self.nesterov else v
        w -= scalars[0] * g


@dataclass(frozen=True)
class Adam(Optimizer):
    """alpha = lr·√(1-β2^t)/(1-β1^t); m += (g-m)(1-β1); v += (g²-v)(1-β2); w -= alpha·m/(√v+ε), as ONERT and Keras have it."""

    beta_1: float = 0.9
    beta_2: float = 0.999
    epsilon: float = 1e-7
    slots = ("m", "v")

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("beta_1", "beta_2"):
            _require(self, name, 0 <= getattr(self, name) < 1, "in [0, 1)")
        _require(self, "epsilon", self.epsilon >= 0, "not negative")

    def scalars(self, learning_rate: float, step: int) -> tuple[float, ...]:
        bias = sqrt(1 - self.beta_2**step) / (1 - self.beta_1**step)
        return (learning_rate * bias, learning_rate)

    def update(self, w: Array, g: Array, scalars: Array, *slots: Array) -> None:
        m, v = slots
        self.update_moments(g, m, v)
        w -= scalars[0] * m / (np.sqrt(v) + np.float32(self.epsilon))

    def update_moments(self, g: Array, m: Array, v: Array) -> None:
        """Exponential means of the gradient and of its square; 1-β is formed in float32."""
        m += (g - m) * (np.float32(1) - np.float32(self.beta_1))
        v += (g * g - v) * (np.float32(1) - np.float32(self.beta_2))


class AdamWStyle(enum.Enum):
    """Two forms go by the name AdamW."""

    TORCH = "torch"
    """Decay before the update; ε is added to the bias-corrected root."""
    ORT = "ort"
    """Decay after the update; ε is added to the uncorrected root (old Hugging Face, ONNX Runtime)."""


@dataclass(frozen=True)
class AdamW(Adam):
    """Adam with decoupled weight decay, in PyTorch's form or ONNX Runtime's (`style="ort"`)."""

    epsilon: float = 1e-8
    weight_decay: float = 0.01
    style: AdamWStyle | str = AdamWStyle.TORCH
    bias_correction: bool = True

    def __post_init__(self) -> None:
        super().__post_init__()
        try:
            object.__setattr__(self, "style", AdamWStyle(self.style))
        except ValueError:
            raise ConfigError(f"AdamW: style is {self.style!r}, expected 'torch' or 'ort'") from None
        _require(self, "weight_decay", self.weight_decay >= 0, "not negative")

    def scalars(self, learning_rate: float, step: int) -> tuple[float, ...]:
        """Step size, factor that decays the weights, and 1/√(1-β2^t) for PyTorch's root."""
        first = 1 - self.beta_1**step if self.bias_correction else 1.0
        second = sqrt(1 - self.beta_2**step) if self.bias_correction else 1.0
        decay = 1 - learning_rate * self.weight_decay
        if self.style is AdamWStyle.TORCH:
            return (learning_rate / first, decay, 1 / second)
        return (learning_rate * second / first, decay, 1.0)

    def update(self, w: Array, g: Array, scalars: Array, *slots: Array) -> None:
        m, v = slots
        self.update_moments(g, m, v)
        if self.style is AdamWStyle.TORCH:
            w *= scalars[1]
        w -= scalars[0] * m / (np.sqrt(v) * scalars[2] + np.float32(self.epsilon))
        if self.style is AdamWStyle.ORT:
            w *= scalars[1]


@register("UPDATE", internal=True)
@dataclass(frozen=True)
class Update(Op):
    """One optimizer step on one weight, in its memory and its slots'."""

    rule: Optimizer
    mutates = True

    def infer(self, w: TensorType, g: TensorType, scalars: TensorType, *slots: TensorType) -> tuple[TensorType, ...]:
        return ()

    def forward(self, w: Array, g: Array, scalars: Array, *slots: Array) -> tuple[Array, ...]:
        self.rule.update(w, g, scalars, *slots)
        return ()


def _require(optimizer: Optimizer, field: str, holds: bool, expected: str) -> None:
    """Refuse a setting, naming it."""
    if not holds:
        raise ConfigError(f"{type(optimizer).__name__}: {field} is {getattr(optimizer, field)}, expected {expected}")


BY_NAME: dict[str, type[Optimizer]] = {"sgd": SGD, "adam": Adam, "adamw": AdamW}
