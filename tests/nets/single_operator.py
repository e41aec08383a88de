"""Every operator's examples as test parameters, and models of one operator made from them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pytest

from circle_train.ir import DType, Graph, Module, Node, Tensor, TensorType
from circle_train.ir.graph import constant
from circle_train.ir.tensor_type import Array
from circle_train.ops import REGISTRY, Example, Op


def is_float(value: Array | None) -> bool:
    return value is not None and value.dtype == np.float64


def examples(known: Mapping[str, type[Op]] = REGISTRY) -> Iterator[Any]:
    """Every example of every operator, as pytest parameters."""
    for name, cls in sorted(known.items()):
        for number, example in enumerate(cls.examples()):
            yield pytest.param(example, id=f"{name}-{number}")


every_example = pytest.mark.parametrize("example", list(examples()))
every_operator = pytest.mark.parametrize(
    "cls", [pytest.param(cls, id=name) for name, cls in sorted(REGISTRY.items())]
)


def is_constant(example: Example, index: int) -> bool:
    """Whether a graph would hold this input as a constant."""
    value = example.inputs[index]
    return value is not None and (value.dtype.kind != "f" or index in example.constant)


def single(example: Example) -> list[Array | None]:
    """The inputs in the precision that models have."""
    return [x.astype(np.float32) if x is not None and x.dtype == np.float64 else x for x in example.inputs]


def computed(op: Op, values: Sequence[Array | None]) -> list[Array]:
    """The reference's outputs."""
    with np.errstate(all="ignore"):
        return [np.asarray(output) for output in op.compute(values)]


def module_of(example: Example) -> Module:
    """One node between graph inputs and constants; where all would be constants, the first is an input."""
    values = single(example)
    fed = [i for i, value in enumerate(values) if value is not None and not is_constant(example, i)] or [0]
    inputs: list[Tensor | None] = []
    for i, value in enumerate(values):
        if value is None:
            inputs.append(None)
        elif i in fed:
            inputs.append(Tensor(f"x{i}", TensorType(DType.of(value.dtype), value.shape)))
        else:
            inputs.append(constant(value, f"x{i}"))
    results = [TensorType(DType.of(y.dtype), y.shape) for y in computed(example.op, values)]
    outputs = [Tensor(f"y{i}", type_) for i, type_ in enumerate(results)]
    node = Node(example.op, inputs, outputs, 0)
    for tensor in outputs:
        tensor.producer = node
    graph = Graph("main", [t for i in fed if (t := inputs[i]) is not None], outputs, [node])
    return Module([graph])
