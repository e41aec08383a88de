"""Which operators may take a batch in parts: what the rules allow, the arithmetic bears out for every example."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from networks import make
from single_operator import computed, single

import circle_train as ct
from circle_train.compile.separable import is_separable
from circle_train.ir import DType, Graph, Node, Tensor, TensorType
from circle_train.ir.graph import constant
from circle_train.ops import REGISTRY, Example
from circle_train.ops.registry import INTERNAL

NAMED = {**INTERNAL, **REGISTRY}
BATCH = 3


X = np.random.default_rng(0).uniform(-1, 1, (2, 4, 3))
MORE = {
    "SLICE": [Example(make("SLICE"), (X, np.array([0, 1, 0]), np.array([-1, 2, 3])))],
    "STRIDED_SLICE": [
        Example(
            make("STRIDED_SLICE", begin_mask=1, end_mask=1, shrink_axis_mask=shrink),
            (X, np.array([0, 1, 0]), np.array([0, 3, 2]), np.array([1, 1, 1])),
        )
        for shrink in (0, 2, 4)
    ],
}
"""Where no example leaves the first axis open."""


def batched(example: Example, chosen: tuple[int, ...]) -> list[Any] | None:
    """The example's inputs, those chosen with three different samples along a first axis that had another size."""
    values = single(example)
    for index in chosen:
        value = values[index]
        if value is None or value.ndim < 1 or index in example.constant:
            return None
        sample = value[:1]
        parts = [
            sample,
            sample[..., ::-1] if sample.dtype.kind != "f" else sample * np.float32(0.5),
            sample[:, ::-1] if sample.ndim > 1 else sample,
        ]
        values[index] = np.concatenate(parts)
    return values


def allowed() -> Iterator[Any]:
    """Every example, with every choice of one or two inputs or all that hold samples, which the rules allow."""
    for name in sorted(NAMED):
        for number, example in enumerate([*NAMED[name].examples(), *MORE.get(name, ())]):
            count = len(example.inputs)
            choices = {(i,) for i in range(count)} | {(0, 1)} | {tuple(range(count))}
            for chosen in sorted(choice for choice in choices if max(choice) < count):
                if (values := batched(example, chosen)) is not None and allows(example, values, chosen):
                    yield pytest.param(
                        example, values, chosen, id=f"{name}-{number}-{''.join(map(str, chosen))}"
                    )


def node_of(example: Example, values: list[Any], chosen: tuple[int, ...]) -> tuple[Node, set[Tensor]] | None:
    tensors = [
        None
        if value is None
        else Tensor(f"x{i}", TensorType(DType.of(value.dtype), value.shape))
        if i in chosen
        else constant(value, f"x{i}")
        for i, value in enumerate(values)
    ]
    graph = Graph("one")
    try:
        graph.emit_all(example.op, *tensors)
        computed(example.op, values)
    except (ct.CircleTrainError, ValueError):
        return None
    return graph.nodes[0], {t for i, t in enumerate(tensors) if i in chosen and t is not None}


def allows(example: Example, values: list[Any], chosen: tuple[int, ...]) -> bool:
    found = node_of(example, values, chosen)
    return found is not None and is_separable(*found, BATCH)


ALLOWED = list(allowed())


@pytest.mark.parametrize(("example", "values", "chosen"), ALLOWED)
def test_what_is_allowed_keeps_samples_apart(
    example: Example, values: list[Any], chosen: tuple[int, ...]
) -> None:
    """Each sample alone gives its part of the whole batch's outputs."""
    whole = computed(example.op, values)
    if example.op.view_of is not None:
        return
    for sample in range(BATCH):
        alone = [v[sample : sample + 1] if i in chosen else v for i, v in enumerate(values)]
        for one, all_ in zip(computed(example.op, alone), whole, strict=True):
            np.testing.assert_allclose(one[0], all_[sample], rtol=1e-5, atol=1e-6)


def test_most_operators_have_an_example_that_may_be_taken_in_parts() -> None:
    """What the first axis of no example shows, axes that differ show in test_ops_axes."""
    reached = {parameter.values[0].op.name for parameter in ALLOWED}
    assert len(reached) > 100
