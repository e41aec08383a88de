"""Inputs of an ONNX model whose values the caller gives: the graph holds them as constants."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from circle_train.convert.building.builder import Builder
from circle_train.convert.onnx_file.importer import Dim, Source
from circle_train.convert.stages.symbols import Assignment
from circle_train.ir import Tensor
from circle_train.ir.size import Number, Size
from circle_train.ir.tensor_type import Array
from circle_train.passes.given import require_input, value_of

Given = dict[str, tuple[Array, tuple[Dim, ...]]]


def asked_values(model: Source, values: Mapping[str, Any]) -> Given:
    """The values in the element types and ranks of the inputs of these names."""
    found: Given = {}
    for name, value in values.items():
        require_input(name, model.inputs)
        dtype, dims = model.inputs[name]
        found[name] = value_of(name, value, dtype, dims), dims
    return found


def sizes_in(given: Given) -> dict[str, Number]:
    """What open sizes are, as far as the values' shapes say so; one entry along an axis serves any size."""
    pairs = [pair for array, dims in given.values() for pair in zip(dims, array.shape, strict=True)]
    return {dim: size for dim, size in pairs if isinstance(dim, str) and size > 1}


def give(model: Source, given: Given) -> None:
    """Take these inputs from the model's, and note their values."""
    model.given |= given
    model.inputs = {name: kind for name, kind in model.inputs.items() if name not in given}


def own_sizes(model: Source, given: Given, known: Mapping[str, Number]) -> dict[str, Number]:
    """1 for each open size that these inputs have and no other has."""
    others = [dims for name, (_, dims) in model.inputs.items() if name not in given]
    elsewhere, here = (
        {
            name
            for dims in group
            for size in Assignment(known, {}).sizes(dims)
            if isinstance(size, Size)
            for name in size.symbols()
        }
        for group in (others, [dims for _, dims in given.values()])
    )
    return dict.fromkeys(sorted(here - elsewhere), 1)


def constants(model: Source, builder: Builder, assignment: Assignment) -> dict[str, Tensor]:
    """The given values as tensors, in the sizes that their axes have."""
    made = {}
    for name, (array, dims) in model.given.items():
        sizes = assignment.sizes(dims)
        tensor = builder.constant(array)
        if any(size != found for size, found in zip(sizes, array.shape, strict=True)):
            tensor = builder("BROADCAST_TO", tensor, builder.integers(sizes))
        made[name] = tensor
    return made
