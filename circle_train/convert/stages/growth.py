"""A batch that had to be guessed: at another one the model does what it would if converted for that, or is refused."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from circle_train.convert.building.refusal import Blocked
from circle_train.convert.onnx_file.importer import Source
from circle_train.convert.stages.written import Endless
from circle_train.errors import ModelError
from circle_train.ir import Graph, Module, Role, Tensor
from circle_train.ir.size import Number
from circle_train.ops.open.derive import Learnt
from circle_train.passes.batch import set_shapes


def mark_guesses(
    model: Source, module: Module, known: Mapping[str, Number], guessed: set[str],
    again: Callable[[Mapping[str, Number]], tuple[Module, object]],
) -> None:  # fmt: skip
    """A batch is not several of a guessed size: the model may compute something over all of it.

    Nor need it grow rightly: a number for each sample, written as a constant for one, fits any batch and is wrong.
    """
    batches, inputs = set[str](), []
    for tensor in module.main.inputs:
        _, dims = model.inputs.get(tensor.name, (None, ()))
        if dims and dims[0] in guessed:
            tensor.role |= Role.ONE_SIZE
            batches.add(str(dims[0]))
            inputs.append(tensor)
    if not batches:
        return
    two = {name: 2 if name.split("/")[0] in batches and size == 1 else size for name, size in known.items()}
    try:
        is_grown = _grows_into(module.main, again(two)[0].main)
        why = "" if is_grown else "it has other operators or constants"
    except (Blocked, Endless, Learnt) as error:
        why = f"it cannot be converted ({error})"
    for tensor in inputs:
        tensor.rigid = why


def _grows_into(graph: Graph, other: Graph) -> bool:
    grown = graph.copy()
    try:
        set_shapes(grown, [tensor.shape for tensor in other.inputs])
    except ModelError:
        return True  # as whoever asks for it is told
    return _alike(grown, other)


def _alike(one: Graph, other: Graph) -> bool:
    """The same operators on the same constants, in the same order."""
    if len(one.nodes) != len(other.nodes):
        return False
    twins: dict[Tensor, Tensor] = dict(zip(one.inputs, other.inputs, strict=True))
    for mine, its in zip(one.nodes, other.nodes, strict=True):
        if mine.op != its.op or len(mine.inputs) != len(its.inputs) or len(mine.outputs) != len(its.outputs):
            return False
        if not all(_same(a, b, twins) for a, b in zip(mine.inputs, its.inputs, strict=True)):
            return False
        twins.update(zip(mine.outputs, its.outputs, strict=True))
    return True


def _same(one: Tensor | None, other: Tensor | None, twins: Mapping[Tensor, Tensor]) -> bool:
    if one is None or other is None:
        return one is other
    if not one.is_constant or not other.is_constant:
        return twins.get(one) is other
    return one.shape == other.shape and np.array_equal(one.data, other.data, equal_nan=one.dtype.is_float)
