"""Training on a grid beside MIT's integer SGD (quantization-aware scaling, arXiv:2206.15472, equations 3 and 4).

Nothing of ours is used but the file's numbers: a graph of integers in torch, its gradients by torch's autograd, and the paper's
scaling of them. Weights lie in units of their scales, biases in units of s_x · s_w.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import circle_train as ct
from circle_train.format import read

torch = pytest.importorskip("torch")
INT8, RATE, STEPS, BATCH = Path("tests/data/int8_cnn.tflite"), 0.01, 10, 8
RNG = np.random.default_rng(4)
Y = np.arange(48) % 3
X = (RNG.integers(-60, 60, (48, 8, 8, 3)) + 50 * (Y - 1)[:, None, None, None]).astype(np.int8)


class Integers:
    """The network of the file, in integers."""

    def __init__(self) -> None:
        tensors = {t.name: t for t in read(INT8).main.all_tensors()}
        self.meaning = {name: t.quantization for name, t in tensors.items() if t.quantization}
        self.weights = {
            name: torch.tensor(t.data.astype(np.float64), requires_grad=True)
            for name, t in tensors.items()
            if t.is_constant and t.quantization
        }
        self.scales = {name: self._scale(name) for name in self.weights}

    def _scale(self, name: str) -> Any:
        """In the shape of the weights."""
        meaning = self.meaning[name]
        shape = [1] * self.weights[name].ndim
        shape[meaning.axis] = -1
        return torch.tensor(meaning.scale, dtype=torch.float64).reshape(shape)

    def cast(self, x: Any, name: str, low: float = -128) -> Any:
        """cast2int8 of equation 2: the gradient passes within the range."""
        zero = self.meaning[name].zero_point[0]
        inside = (torch.round(x) + zero >= low) & (torch.round(x) + zero <= 127)
        rounded = torch.clamp(torch.round(x) + zero, low, 127)
        return torch.where(inside, x + zero + (rounded - x - zero).detach(), rounded)

    def rounded(self, name: str) -> Any:
        """Weights as the file will hold them; those that have left the range stand still."""
        w, whole = self.weights[name], torch.round(self.weights[name].detach())
        inside = (whole >= -128) & (whole <= 127)
        return torch.where(inside, w + (whole - w).detach(), whole.clamp(-128, 127))

    def product(self, x: Any, names: tuple[str, str, str], multiply: Any) -> Any:
        """s_x s_w / s_y · (W x + b)"""
        source, w, y = names
        x = x - self.meaning[source].zero_point[0]
        b = self.weights[f"{w}:bias"]
        b = b + (torch.round(b) - b).detach()
        sums = multiply(x, self.rounded(w)) + b.reshape(-1, *[1] * (x.ndim - 2))
        factor = self.scales[w].reshape(-1, *[1] * (x.ndim - 2)) * self.scale(source) / self.scale(y)
        return factor * sums

    def scale(self, name: str) -> float:
        return float(self.meaning[name].scale[0])

    def real(self, x: Any, name: str) -> Any:
        return (x - self.meaning[name].zero_point[0]) * self.scale(name)

    def total(self, x: Any) -> Any:
        """What the mean is taken of."""
        conv = torch.nn.functional.conv2d
        x = torch.tensor(x.astype(np.float64)).permute(0, 3, 1, 2)
        first = self.product(
            x, ("x", "conv", "first"), lambda x, w: conv(x, w.permute(0, 3, 1, 2), padding=1)
        )
        first = self.cast(first, "first")
        second = self.product(
            first,
            ("first", "depthwise", "second"),
            lambda x, w: conv(x, w.permute(3, 0, 1, 2), padding=1, groups=8),
        )
        second = self.cast(second, "second")
        total = self.real(first, "first") + self.real(second, "second")
        return self.cast(total / self.scale("total"), "total")

    def has_halves(self, x: Any) -> Any:
        """Samples with means that lie between two integers: of reals they round as sums happen to be rounded before."""
        sums = self.total(x).sum((2, 3)).detach().numpy()
        return (np.rint(sums) % 64 == 32).any(axis=1)

    def logits(self, x: Any) -> Any:
        total = self.real(self.total(x), "total").mean((2, 3))
        flat = self.cast(total / self.scale("mean"), "mean")
        made = self.product(flat, ("flat", "dense", "logits"), torch.nn.functional.linear)
        return self.real(self.cast(made, "logits"), "logits")

    def step(self, x: Any, y: Any) -> float:
        """Gradients of the integers, divided by their scales' squares."""
        loss = torch.nn.functional.cross_entropy(self.logits(x), torch.tensor(y))
        loss.backward()
        with torch.no_grad():
            for name, weights in self.weights.items():
                weights.sub_(RATE * weights.grad / self.scales[name] ** 2)
                weights.grad = None
        return float(loss.detach())


def test_ten_steps_of_sgd_are_those_of_integers_with_scaled_gradients() -> None:
    """All weights and biases; those of a bias are s_x · s_w, so that its gradient is divided by both squares."""
    config = ct.TrainConfig(
        loss="sparse_categorical_crossentropy",
        optimizer=ct.optimizers.SGD(learning_rate=RATE),
        batch_size=BATCH,
    )
    ours, theirs = ct.TrainSession(INT8, config), Integers()
    before = {name: np.array(value) for name, value in ours.parameters.items()}
    for i in range(STEPS):
        batch = np.roll(np.flatnonzero(~theirs.has_halves(X)), -4 * i)[:BATCH]
        assert len(batch) == BATCH
        loss = ours.train_step(X[batch], Y[batch]).loss
        assert loss == pytest.approx(theirs.step(X[batch], Y[batch]), rel=1e-6)
    for name, value in ours.parameters.items():
        wanted = (theirs.weights[name] * theirs.scales[name]).detach().numpy()
        assert np.abs(wanted - before[name]).max() > 1e-4, name
        np.testing.assert_allclose(value, wanted, rtol=1e-6, atol=1e-6, err_msg=name)
