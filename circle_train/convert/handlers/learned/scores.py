"""What classifiers have in common: one score for two classes, transformations of scores, labels."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np

from circle_train.convert.building.refusal import Refusal
from circle_train.convert.building.registry import Call
from circle_train.ir import DType, Role, Tensor
from circle_train.ir.tensor_type import Array

ML = "ai.onnx.ml"


def rows(c: Call) -> Tensor:
    """The samples as floats, a row each."""
    x = c.b.cast(c[0], DType.FLOAT32)
    return c.b.reshape(x, (1, *c.shape())) if c.rank() == 1 else x


def numbers(c: Call, name: str) -> Array:
    """An attribute of floats, perhaps given as a tensor."""
    given = c.attr(name)
    given = c.attr(f"{name}_as_tensor") if given is None else given
    return np.asarray([] if given is None else given, np.float32).reshape(-1)


def dense(c: Call, x: Tensor, weights: Array, bias: Array | None = None) -> Tensor:
    """x · weightsᵀ + bias, both to be trained."""
    learnt = [
        None if values is None or not values.size else c.b.like(x, values) for values in (weights, bias)
    ]
    for tensor in learnt:
        if tensor is not None:
            tensor.role = Role.PLAIN
    return c.b("FULLY_CONNECTED", x, *learnt)


def transformed(c: Call, scores: Tensor, name: str | None = None) -> Tensor:
    """The scores after the transformation that the node names."""
    b, name = c.b, name or c.attr("post_transform", "NONE")
    if name == "NONE":
        return scores
    if name == "LOGISTIC":
        return b("LOGISTIC", scores)
    if name == "SOFTMAX":
        return b("SOFTMAX", scores, beta=1.0)
    raise Refusal(f"it transforms scores by {name}, which Circle has no operator for")


def doubled(c: Call, score: Tensor, is_probability: bool) -> Tensor:
    """Both classes' scores, where only that of the second is computed: a probability, or a number around 0."""
    b = c.b
    other = b("SUB", b.like(score, 1.0), score) if is_probability else b("NEG", score)
    return b("CONCATENATION", other, score, axis=1)


def labels(c: Call, scores: Tensor) -> Tensor:
    """The class of the largest score; of classes that have names, its place in their list."""
    b = c.b
    best = b("ARG_MAX", scores, b.constant(1, np.int32), output_type=DType.INT64)
    return named(c, best)


def named(c: Call, place: Tensor) -> Tensor:
    """The number of the class; of classes that have names, the place in their list."""
    b, numbered = c.b, c.attr("classlabels_ints") or c.attr("classlabels_int64s")
    names = c.attr("classlabels_strings")
    if names and len(names):
        if c.uses(0):
            shown = ", ".join(f"{i} {_text(name)}" for i, name in enumerate(names[:5]))
            warnings.warn(
                f"{c.op} gives the places of classes instead of their names, which Circle does not compute: {shown}"
                f"{', …' if len(names) > 5 else ''}",
                stacklevel=2,
            )
        return place
    if numbered is None or list(numbered) == list(range(len(numbered))):
        return place
    return b("GATHER", b.constant(np.array(numbered, np.int64)), place, axis=0, batch_dims=0)


def count(c: Call) -> int:
    """How many classes there are."""
    known: Sequence[Any] = (
        c.attr("classlabels_strings") or c.attr("classlabels_ints") or c.attr("classlabels_int64s") or ()
    )
    return len(known)


def _text(name: Any) -> str:
    return name.decode(errors="replace") if isinstance(name, bytes) else str(name)
