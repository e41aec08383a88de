"""Optimizers: each declares its slots, the numbers of each step, and the update of one weight."""

from __future__ import annotations

import enum
from math import sqrt

import numpy as np

from circle_train.errors import ConfigError
from circle_train.ir.tensor_type import Array
from circle_train.optimizers.optimizer import Optimizer
from circle_train.record import record


@record
class SGD(Optimizer):
    """w -= lr·g; with momentum v = momentum·v + g and w -= lr·v (nesterov: lr·(g + momentum·v)).

    Weight decay is added to g.
    """

    has_units = False

    momentum: float = 0.0
    """What of the last step goes on, from 0 to less than 1."""
    nesterov: bool = False
    """Whether the gradient is taken as if the momentum had moved already."""
    weight_decay: float = 0.0
    """Times the weight, added to its gradient."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self._require("momentum", 0 <= self.momentum < 1, "in [0, 1)")
        self._require("nesterov", not self.nesterov or self.momentum > 0, "False where momentum is 0")
        self._require("weight_decay", self.weight_decay >= 0, "not negative")

    @property
    def slots(self) -> tuple[str, ...]:
        return ("momentum",) if self.momentum else ()

    def update(self, w: Array, g: Array, scalars: Array, *slots: Array) -> None:
        if self.weight_decay:
            g = g + self.weight_decay * w
        if slots:
            (v,) = slots
            v *= self.momentum
            v += g
            g = g + self.momentum * v if self.nesterov else v
        w -= scalars[0] * g


@record
class Adam(Optimizer):
    """alpha = lr·√(1-β2^t)/(1-β1^t); m += (g-m)(1-β1); v += (g²-v)(1-β2); w -= alpha·m/(√v+ε).

    As ONERT and Keras have it: ε is added to the uncorrected root.
    """

    beta_1: float = 0.9
    """What remains of the mean gradient at each step."""
    beta_2: float = 0.999
    """What remains of the mean square at each step."""
    epsilon: float = 1e-7
    """ε, against division by nothing."""

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("beta_1", "beta_2"):
            self._require(name, 0 <= self.rounded(getattr(self, name)) < 1, "in [0, 1) as a float32")
        self._require("epsilon", self.epsilon >= 0, "not negative")

    @property
    def slots(self) -> tuple[str, ...]:
        return ("m", "v")

    def scalars(self, learning_rate: float, step: int) -> tuple[float, ...]:
        beta_1, beta_2 = self.rounded(self.beta_1), self.rounded(self.beta_2)
        bias = sqrt(1 - beta_2**step) / (1 - beta_1**step)
        return (learning_rate * bias, learning_rate)

    def update(self, w: Array, g: Array, scalars: Array, *slots: Array) -> None:
        m, v = slots
        self.update_moments(g, m, v)
        w -= scalars[0] * m / (np.sqrt(v) + self.epsilon)

    def update_moments(self, g: Array, m: Array, v: Array) -> None:
        """Exponential means of the gradient and of its square."""
        m += (g - m) * (1 - self.rounded(self.beta_1))
        v += (g * g - v) * (1 - self.rounded(self.beta_2))

    def rounded(self, beta: float) -> float:
        """β in float32, as ONERT and ONNX Runtime hold it: 1-0.999 is 0.00099998713."""
        return float(np.float32(beta))


class AdamWStyle(enum.Enum):
    """Two forms go by the name AdamW."""

    TORCH = "torch"
    """Decay before the update; ε is added to the bias-corrected root."""
    ORT = "ort"
    """Decay after the update; ε is added to the uncorrected root (old Hugging Face, ONNX Runtime)."""


@record
class AdamW(Adam):
    """Adam with decoupled weight decay, in PyTorch's form or ONNX Runtime's (`style="ort"`)."""

    epsilon: float = 1e-8
    """ε, against division by nothing."""
    weight_decay: float = 0.01
    """Of the weight, times the learning rate, taken off at each step."""
    style: AdamWStyle | str = AdamWStyle.TORCH
    """ "torch" or "ort"."""
    bias_correction: bool = True
    """Whether means of the first steps are made up for what they lack."""

    def __post_init__(self) -> None:
        super().__post_init__()
        try:
            object.__setattr__(self, "style", AdamWStyle(self.style))
        except ValueError:
            raise ConfigError(f"AdamW: style is {self.style!r}, expected 'torch' or 'ort'") from None
        self._require("weight_decay", self.weight_decay >= 0, "not negative")

    def scalars(self, learning_rate: float, step: int) -> tuple[float, ...]:
        """Step size, factor that decays the weights, and 1/√(1-β2^t) for PyTorch's root."""
        first = 1 - self.rounded(self.beta_1) ** step if self.bias_correction else 1.0
        second = sqrt(1 - self.rounded(self.beta_2) ** step) if self.bias_correction else 1.0
        decay = 1 - learning_rate * self.weight_decay
        if self.style is AdamWStyle.TORCH:
            return (learning_rate / first, decay, 1 / second)
        return (learning_rate * second / first, decay, 1.0)

    def update(self, w: Array, g: Array, scalars: Array, *slots: Array) -> None:
        m, v = slots
        self.update_moments(g, m, v)
        if self.style is AdamWStyle.TORCH:
            w *= scalars[1]
        w -= scalars[0] * m / (np.sqrt(v) * scalars[2] + self.epsilon)
        if self.style is AdamWStyle.ORT:
            w *= scalars[1]


@record
class RMSprop(Optimizer):
    """s += (g²-s)(1-ρ); w -= lr·g/(√s+ε); centered: √(s-a²) with a += (g-a)(1-ρ).

    With momentum b = momentum·b + g/(√s+ε) and w -= lr·b. As PyTorch has it: decay added to g.
    """

    rho: float = 0.9
    """ρ: what remains of the mean square at each step."""
    momentum: float = 0.0
    """What of the last step goes on, from 0 to less than 1."""
    epsilon: float = 1e-7
    """ε, against division by nothing."""
    centered: bool = False
    """Whether the mean gradient's square is taken off."""
    weight_decay: float = 0.0
    """Times the weight, added to its gradient."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self._require("rho", 0 <= self.rho < 1, "in [0, 1)")
        self._require("momentum", 0 <= self.momentum < 1, "in [0, 1)")
        self._require("epsilon", self.epsilon > 0, "a positive number")
        self._require("weight_decay", self.weight_decay >= 0, "not negative")

    @property
    def slots(self) -> tuple[str, ...]:
        return ("square", *(["average"] if self.centered else []), *(["momentum"] if self.momentum else []))

    def update(self, w: Array, g: Array, scalars: Array, *slots: Array) -> None:
        state = dict(zip(self.slots, slots, strict=True))
        if self.weight_decay:
            g = g + self.weight_decay * w
        s = state["square"]
        s += (g * g - s) * (1 - self.rho)
        spread = s
        if self.centered:
            a = state["average"]
            a += (g - a) * (1 - self.rho)
            spread = np.maximum(s - a * a, 0)
        g = g / (np.sqrt(spread) + self.epsilon)
        if self.momentum:
            b = state["momentum"]
            b *= self.momentum
            b += g
            g = b
        w -= scalars[0] * g


@record
class Adagrad(Optimizer):
    """s += g²; w -= lr·g/(√(s+s0)+ε), s0 being the initial accumulator value. Decay adds to g."""

    initial_accumulator_value: float = 0.1
    """s0."""
    epsilon: float = 1e-7
    """ε, against division by nothing."""
    weight_decay: float = 0.0
    """Times the weight, added to its gradient."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self._require("initial_accumulator_value", self.initial_accumulator_value >= 0, "not negative")
        self._require("epsilon", self.epsilon > 0, "a positive number")
        self._require("weight_decay", self.weight_decay >= 0, "not negative")

    @property
    def slots(self) -> tuple[str, ...]:
        return ("square",)

    def update(self, w: Array, g: Array, scalars: Array, *slots: Array) -> None:
        if self.weight_decay:
            g = g + self.weight_decay * w
        (s,) = slots
        s += g * g
        w -= scalars[0] * g / (np.sqrt(s + self.initial_accumulator_value) + self.epsilon)
