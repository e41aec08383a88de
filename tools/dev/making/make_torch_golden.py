"""Writes tests/data/torch_losses.json and torch_optimizers.json: what PyTorch computes, in float64.

    python tools/dev/making/make_torch_golden.py

Needs torch; the tests need only the two files.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.nn import functional

DATA = Path(__file__).resolve().parents[3] / "tests" / "data"
SHAPES = {"rank2": (3, 4), "rank3": (2, 3, 4)}
WEIGHTS = [0.5, 1.0, 2.0, 4.0]
Formula = Callable[[Any, Any], Any]
Case = tuple[str, str, dict[str, Any], str, Any, Any, Formula]


def by_item(values: Any, reduction: str) -> Any:
    """Elementwise losses as we reduce them: a sample counts by its mean, but for sum_elements."""
    if reduction == "sum_elements":
        return values.sum()
    items = values.flatten(1).mean(1)
    return {"mean": items.mean, "sum": items.sum, "none": lambda: items}[reduction]()


def elementwise(formula: Callable[..., Any], reduction: str) -> Formula:
    """PyTorch's unreduced loss, reduced as we do."""
    return lambda x, t: by_item(formula(x, t, reduction="none"), reduction)


def of_labels(formula: Formula) -> Formula:
    """A loss of class numbers, taken of one-hot rows."""
    return lambda x, t: formula(x, t.argmax(-1))


def class_axis_second(x: Any) -> Any:
    return x.movedim(-1, 1)


def cross_entropy(reduction: str, **settings: Any) -> Formula:
    def loss(x: Any, t: Any) -> Any:
        kind = "sum" if reduction == "sum_elements" else reduction
        return functional.cross_entropy(class_axis_second(x), t, reduction=kind, **settings)

    return loss


def dense_cross_entropy(reduction: str, **settings: Any) -> Formula:
    """PyTorch's loss of class probabilities."""

    def loss(x: Any, t: Any) -> Any:
        return functional.cross_entropy(
            class_axis_second(x), class_axis_second(t), reduction=reduction, **settings
        )

    return loss


def regressions(rng: np.random.Generator) -> Iterator[Case]:
    formulas: dict[str, tuple[Callable[..., Any], dict[str, Any]]] = {
        "mean_squared_error": (functional.mse_loss, {}),
        "mean_absolute_error": (functional.l1_loss, {}),
        "huber": (
            lambda x, t, reduction: functional.huber_loss(x, t, reduction=reduction, delta=0.7),
            {"delta": 0.7},
        ),
    }
    for name, (formula, settings) in formulas.items():
        for rank, shape in SHAPES.items():
            for reduction in ("mean", "sum", "sum_elements", "none"):
                x, t = rng.normal(size=shape), rng.normal(size=shape)
                yield (
                    f"{name}-{rank}-{reduction}",
                    name,
                    {**settings, "reduction": reduction},
                    "",
                    x,
                    t,
                    elementwise(formula, reduction),
                )


def categorical(rng: np.random.Generator) -> Iterator[Case]:
    name = "categorical_crossentropy"
    for rank, shape in SHAPES.items():
        for reduction in ("mean", "sum", "none"):
            x, t = rng.normal(size=shape) * 3, rng.dirichlet(np.ones(4), shape[:-1])
            for form in ("", "SOFTMAX"):
                yield (
                    f"{name}-{rank}-{reduction}-{form}",
                    name,
                    {"reduction": reduction},
                    form,
                    x,
                    t,
                    dense_cross_entropy(reduction),
                )
        yield (
            f"{name}-{rank}-smooth",
            name,
            {"label_smoothing": 0.1},
            "",
            x,
            t,
            dense_cross_entropy("mean", label_smoothing=0.1),
        )
        labels = rng.integers(0, 4, shape[:-1])
        weighted = cross_entropy(
            "mean", weight=torch.tensor(WEIGHTS, dtype=torch.float64), label_smoothing=0.2
        )
        yield (
            f"{name}-{rank}-weights",
            name,
            {"class_weights": WEIGHTS, "label_smoothing": 0.2},
            "",
            x,
            np.eye(4)[labels],
            of_labels(weighted),
        )


def sparse(rng: np.random.Generator) -> Iterator[Case]:
    name = "sparse_categorical_crossentropy"
    weight = torch.tensor(WEIGHTS, dtype=torch.float64)
    variants: list[tuple[str, dict[str, Any], dict[str, Any]]] = [
        ("plain", {}, {}),
        ("weights", {"class_weights": WEIGHTS}, {"weight": weight}),
        ("ignore", {"ignore_index": -1}, {"ignore_index": -1}),
        ("ignore2", {"ignore_index": 2}, {"ignore_index": 2}),
        ("smooth", {"label_smoothing": 0.1}, {"label_smoothing": 0.1}),
        (
            "all",
            {"label_smoothing": 0.1, "class_weights": WEIGHTS, "ignore_index": -1},
            {"label_smoothing": 0.1, "weight": weight, "ignore_index": -1},
        ),
    ]
    for rank, shape in SHAPES.items():
        for reduction in ("mean", "sum", "none"):
            for variant, ours, theirs in variants:
                x, t = rng.normal(size=shape) * 3, rng.integers(0, 4, shape[:-1])
                if ours.get("ignore_index") == -1:
                    t.reshape(-1)[1] = -1
                for form in ("", "SOFTMAX"):
                    yield (
                        f"{name}-{rank}-{reduction}-{variant}-{form}",
                        name,
                        {**ours, "reduction": reduction},
                        form,
                        x,
                        t,
                        cross_entropy(reduction, **theirs),
                    )


def binary(rng: np.random.Generator) -> Iterator[Case]:
    name = "binary_crossentropy"
    variants: list[tuple[str, dict[str, Any], dict[str, Any]]] = [
        ("plain", {}, {}),
        ("pos_weight", {"pos_weight": WEIGHTS}, {"pos_weight": torch.tensor(WEIGHTS, dtype=torch.float64)}),
        ("weight", {"weight": WEIGHTS}, {"weight": torch.tensor(WEIGHTS, dtype=torch.float64)}),
    ]
    for rank, shape in SHAPES.items():
        for reduction in ("mean", "sum", "sum_elements", "none"):
            for variant, ours, theirs in variants:
                x, t = rng.normal(size=shape) * 4, rng.integers(0, 2, shape).astype(float)
                for form in ("", "LOGISTIC"):
                    yield (
                        f"{name}-{rank}-{reduction}-{variant}-{form}",
                        name,
                        {**ours, "reduction": reduction},
                        form,
                        x,
                        t,
                        elementwise(
                            partial(functional.binary_cross_entropy_with_logits, **theirs), reduction
                        ),
                    )


def losses() -> list[dict[str, Any]]:
    rng = np.random.default_rng(0)
    found = []
    for name, loss, settings, form, x, t, formula in (
        *regressions(rng),
        *categorical(rng),
        *sparse(rng),
        *binary(rng),
    ):
        leaf, target = torch.tensor(np.round(x, 3), requires_grad=True), torch.tensor(np.round(t, 3))
        value = formula(leaf, target)
        (gradient,) = torch.autograd.grad(value.sum(), leaf)
        found.append(
            {
                "name": name,
                "loss": loss,
                "settings": settings,
                "form": form,
                "x": leaf.tolist(),
                "target": target.tolist(),
                "value": value.detach().numpy().round(8).tolist(),
                "gradient": gradient.numpy().round(8).tolist(),
            }
        )
    return found


def optimizers() -> dict[str, Any]:
    rng = np.random.default_rng(0)
    start, gradients = rng.normal(size=6).round(3), rng.normal(size=(20, 6)).round(3)
    optim = torch.optim
    rules: list[tuple[str, dict[str, Any], Callable[[Any], Any]]] = [
        ("sgd", {"learning_rate": 0.1}, lambda p: optim.SGD(p, 0.1)),
        (
            "sgd",
            {"learning_rate": 0.1, "momentum": 0.9, "weight_decay": 0.01},
            lambda p: optim.SGD(p, 0.1, momentum=0.9, weight_decay=0.01),
        ),
        (
            "sgd",
            {"learning_rate": 0.1, "momentum": 0.9, "nesterov": True},
            lambda p: optim.SGD(p, 0.1, momentum=0.9, nesterov=True),
        ),
        (
            "adamw",
            {"learning_rate": 0.01, "weight_decay": 0.1},
            lambda p: optim.AdamW(p, 0.01, weight_decay=0.1),
        ),
        (
            "adamw",
            {"learning_rate": 0.01, "beta_1": 0.8, "beta_2": 0.95, "epsilon": 1e-2, "weight_decay": 0.0},
            lambda p: optim.AdamW(p, 0.01, betas=(0.8, 0.95), eps=1e-2, weight_decay=0),
        ),
        ("rmsprop", {"learning_rate": 0.01, "rho": 0.99, "epsilon": 1e-8}, lambda p: optim.RMSprop(p, 0.01)),
        (
            "rmsprop",
            {"learning_rate": 0.01, "momentum": 0.8, "centered": True, "weight_decay": 0.1},
            lambda p: optim.RMSprop(p, 0.01, 0.9, 1e-7, momentum=0.8, centered=True, weight_decay=0.1),
        ),
        (
            "adagrad",
            {"learning_rate": 0.1, "weight_decay": 0.1, "epsilon": 1e-10},
            lambda p: optim.Adagrad(p, 0.1, initial_accumulator_value=0.1, weight_decay=0.1),
        ),
    ]
    runs = []
    for name, settings, make in rules:
        weight = torch.tensor(start, requires_grad=True)
        optimizer, trace = make([weight]), []
        for gradient in gradients:
            weight.grad = torch.tensor(gradient)
            optimizer.step()
            trace.append(weight.detach().numpy().round(8).tolist())
        runs.append({"optimizer": name, "settings": settings, "first": trace[0], "last": trace[-1]})
    return {"start": start.tolist(), "gradients": gradients.tolist(), "runs": runs}


def main() -> None:
    origin = f"PyTorch {torch.__version__}, float64, by tools/dev/making/make_torch_golden.py"
    for name, content in (("torch_losses", losses()), ("torch_optimizers", optimizers())):
        text = json.dumps({"origin": origin, "cases": content})
        (DATA / f"{name}.json").write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
