"""Operators on 8 bit integers that stand for reals: which kernel computes what `Quantized` wraps."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from circle_train.backends.native.binders.integer.bytes import BINDERS, SHORTS, looked_up
from circle_train.backends.native.engine.binding import Calls, Values, binds
from circle_train.ir.tensor_type import Array
from circle_train.ops.axes import Elementwise
from circle_train.ops.internal.integers.quantized import Quantized


@binds(Quantized)
def quantized(op: Quantized, inputs: Values, outputs: Sequence[Array]) -> Calls:
    """By the wrapped operator; what a function of one byte is comes out of a table."""
    arrays = [a for a in (*inputs, *outputs) if a is not None]
    if len(outputs) != 1 or not all(a.flags.c_contiguous for a in arrays):
        return None
    of = type(op.of)
    binder = SHORTS[of] if of in SHORTS and outputs[0].dtype == np.int16 else BINDERS.get(of)
    calls = binder(op, op.of.pad(inputs), outputs[0]) if binder is not None else None
    if calls is None and len(inputs) == 1 and isinstance(op.of.axes, Elementwise):
        calls = looked_up(op, 0, inputs[0], outputs[0])
    return calls
