"""Rows of a table by index; the gradient of a table adds rows up."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np

from circle_train.backends.native.binders.update import gradient_only, update_of
from circle_train.backends.native.engine import abi
from circle_train.backends.native.engine.abi import Kernel
from circle_train.backends.native.engine.binding import (
    Calls,
    Values,
    binds,
    binds_fused,
    binds_gradient,
    call,
    floats,
    pointer,
)
from circle_train.ir.tensor_type import Array
from circle_train.ops.internal.fused import Fused
from circle_train.ops.internal.gradient import Gradient
from circle_train.ops.shapes.index import EmbeddingLookup

INDEX_TYPES = (np.int32, np.int64)


@binds(EmbeddingLookup)
def embedding(op: EmbeddingLookup, inputs: Values, outputs: Sequence[Array]) -> Calls:
    ids, table = inputs
    return gathered(table, ids, 0, outputs[0])


def gathered(table: Array, indices: Array, axis: int, y: Array) -> Calls:
    """Rows along an axis."""
    if table.itemsize != 4 or indices.dtype not in INDEX_TYPES or table.dtype != y.dtype:
        return None
    outer, width = prod(table.shape[:axis]), prod(table.shape[axis + 1 :])
    args = abi.GatherArgs(
        pointer(table),
        pointer(indices),
        pointer(y),
        outer,
        table.shape[axis],
        width,
        indices.size,
        indices.itemsize,
    )
    return [call(Kernel.GATHER, args, table, indices, y)]


@binds_gradient("table", EmbeddingLookup)
def embedding_table(op: Gradient, given: dict[str, Any], out: Array) -> Calls:
    return scattered(given["dy"], given["ids"], out.shape, 0, gradient_only(out), (out,))


@binds_fused("table_w")
def fused_table(op: Fused, given: dict[str, Any], outputs: Sequence[Array]) -> Calls:
    """The gradient of a table's rows, and the table's update."""
    rule = update_of(op.settings.w, "w", given, dict(zip(op.settings.made, outputs, strict=True)))
    return scattered(given["dy"], given["indices"], op.settings.shape, 0, rule, (*given.values(), *outputs))


def scattered(
    dy: Array,
    indices: Array,
    shape: tuple[int, ...],
    axis: int,
    update: abi.Update | None,
    keep: tuple[Any, ...],
) -> Calls:
    if not floats(dy) or indices.dtype not in INDEX_TYPES or update is None:
        return None
    outer, width = prod(shape[:axis]), prod(shape[axis + 1 :])
    args = abi.ScatterAddArgs(
        pointer(dy), pointer(indices), outer, shape[axis], width, indices.size, update, indices.itemsize
    )
    return [call(Kernel.SCATTER_ADD, args, dy, indices, keep)]
