"""Linear models and support vectors."""

from __future__ import annotations

import numpy as np

from circle_train.convert.building.refusal import Refusal
from circle_train.convert.building.registry import Call, handles
from circle_train.convert.handlers.learned.scores import (
    ML,
    count,
    dense,
    doubled,
    labels,
    named,
    numbers,
    rows,
    transformed,
)
from circle_train.ir import DType, Tensor


@handles("LinearRegressor", domain=ML)
def linear_regressor(c: Call) -> Tensor:
    x, targets = rows(c), int(c.attr("targets", 1))
    return transformed(
        c, dense(c, x, numbers(c, "coefficients").reshape(targets, -1), numbers(c, "intercepts"))
    )


@handles("LinearClassifier", domain=ML)
def linear_classifier(c: Call) -> list[Tensor]:
    b, x, bias = c.b, rows(c), numbers(c, "intercepts")
    weights = numbers(c, "coefficients")
    features = int(b.example(b.shape(x)[1]))
    targets = bias.size or weights.size // features
    scores = dense(c, x, weights[: targets * features].reshape(targets, -1), bias)
    if targets > 1:
        return [labels(c, scores), transformed(c, scores)]
    above = b("GREATER", b.reshape(scores, (b.shape(scores)[0],)), b.like(scores, 0.0))
    both = scores if c.attr("post_transform") == "SOFTMAX" else transformed(c, scores)
    if count(c) == 2:
        both = doubled(c, both, is_probability=True)
    return [named(c, b.cast(above, DType.INT64)), both]


@handles("SVMRegressor", domain=ML)
def svm_regressor(c: Call) -> Tensor:
    x, vectors = rows(c), int(c.attr("n_supports", 0))
    coefficients, rho = numbers(c, "coefficients"), numbers(c, "rho")
    if not vectors:
        score = dense(c, x, coefficients.reshape(1, -1), rho[:1])
    else:
        score = dense(
            c,
            _kernel(c, x, numbers(c, "support_vectors").reshape(vectors, -1)),
            coefficients.reshape(1, -1),
            rho[:1],
        )
    if c.attr("one_class", 0):
        b = c.b
        score = b(
            "SELECT_V2", b("GREATER", score, b.like(score, 0.0)), b.like(score, 1.0), b.like(score, -1.0)
        )
    return transformed(c, score)


@handles("SVMClassifier", domain=ML)
def svm_classifier(c: Call) -> list[Tensor]:
    """One against one: every pair of classes has a vote; without support vectors, scores of classes."""
    b, x, per_class = c.b, rows(c), [int(n) for n in c.attr("vectors_per_class") or ()]
    coefficients, rho = numbers(c, "coefficients"), numbers(c, "rho")
    if not per_class:
        scores = dense(c, x, coefficients.reshape(count(c), -1), np.repeat(rho[:1], count(c)))
        return [labels(c, scores), transformed(c, scores)]
    if numbers(c, "prob_a").size:
        raise Refusal("it couples pairs of classes to probabilities, which Circle has no operator for")
    vectors = sum(per_class)
    products = _kernel(c, x, numbers(c, "support_vectors").reshape(vectors, -1))
    weights, pairs = _pairs(per_class, coefficients.reshape(len(per_class) - 1, vectors))
    scores = dense(c, products, weights, rho)
    wins = b.cast(b("GREATER", scores, b.like(scores, 0.0)), DType.FLOAT32)
    first, second = (
        np.array([[one in pair[i : i + 1] for pair in pairs] for one in range(len(per_class))], np.float32)
        for i in (0, 1)
    )
    votes = b("FULLY_CONNECTED", wins, b.like(wins, first - second), b.like(wins, second.sum(1)))
    if len(pairs) == 1:
        scores = b("CONCATENATION", b("NEG", scores), scores, axis=1) if count(c) == 2 else scores
    return [labels(c, votes), transformed(c, scores)]


def _pairs(per_class: list[int], coefficients: np.ndarray) -> tuple[np.ndarray, list[tuple[int, int]]]:
    """The weights of every pair's score over all vectors, and the pairs."""
    ends = np.cumsum([0, *per_class])
    pairs = [(i, j) for i in range(len(per_class)) for j in range(i + 1, len(per_class))]
    weights = np.zeros((len(pairs), coefficients.shape[1]), np.float32)
    for row, (i, j) in enumerate(pairs):
        one, other = slice(ends[i], ends[i + 1]), slice(ends[j], ends[j + 1])
        weights[row, one], weights[row, other] = coefficients[j - 1, one], coefficients[i, other]
    return weights, pairs


def _kernel(c: Call, x: Tensor, vectors: np.ndarray) -> Tensor:
    """How alike each sample and each vector are."""
    b, kind = c.b, c.attr("kernel_type", "LINEAR")
    gamma, constant, degree = ([float(n) for n in c.attr("kernel_params") or ()] + [0.0] * 3)[:3]
    products = b("FULLY_CONNECTED", x, b.like(x, vectors))
    if kind == "LINEAR":
        return products
    if kind == "RBF":
        own = b("SUM", b("MUL", x, x), b.integers([1]), keep_dims=True)
        distances = b(
            "ADD", b("SUB", own, b("MUL", products, b.like(x, 2.0))), b.like(x, (vectors**2).sum(1))
        )
        return b("EXP", b("MUL", distances, b.like(x, -gamma)))
    inner = b("ADD", b("MUL", products, b.like(x, gamma)), b.like(x, constant))
    if kind == "SIGMOID":
        return b("TANH", inner)
    if kind == "POLY":
        return b("POW", inner, b.like(x, degree))
    raise Refusal(f"its kernel is {kind}, which ONNX does not know")
