"""Products of floats with weights in bytes: packed like those of integers when they are bound."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from circle_train.backends.native.binders.conv import geometry
from circle_train.backends.native.binders.integer.products import LARGEST_WINDOW, in_panels, long_row, packed
from circle_train.backends.native.engine import abi
from circle_train.backends.native.engine.abi import Kernel
from circle_train.backends.native.engine.binding import Calls, Values, binds, call, floats, pointer
from circle_train.ir.tensor_type import Array
from circle_train.ops.internal.integers.hybrid import Hybrid, Rounding, RoundSamples
from circle_train.ops.layers.conv import Conv2D


@binds(Hybrid)
def hybrid(op: Hybrid, inputs: Values, outputs: Sequence[Array]) -> Calls:
    (x, w, b), y = inputs, outputs[0]
    if not floats(x, b, y) or w[:1].size > LARGEST_WINDOW or not len(w):
        return None
    if isinstance(op.of, Conv2D):
        shape, kernel = geometry(op.of, x.shape, w.shape, y.shape), w
    else:
        shape, kernel = long_row(y, w.shape), w.reshape(len(w), 1, 1, -1)
    panels = packed(kernel, 1, shape.dilation_w == 1)
    counted = kernel.sum((1, 2, 3), dtype=np.int32)
    scale = np.broadcast_to(np.array(op.weights.scale, np.float32), len(w))
    added = np.zeros(len(w), np.float32) if b is None else b.reshape(-1)
    places = tuple(in_panels(values, 1) for values in (counted, scale, added))
    low, high = op.of.activation.bounds
    args = abi.IntHybridArgs(
        pointer(x), pointer(panels), *map(pointer, places), pointer(y), shape, op.samples(x.shape, w.shape),
        -np.inf if low is None else low, np.inf if high is None else high, int(op.rounding),
    )  # fmt: skip
    return [call(Kernel.INT_HYBRID, args, x, panels, places, y)]


@binds(RoundSamples)
def rounded_samples(op: RoundSamples, inputs: Values, outputs: Sequence[Array]) -> Calls:
    (x,), (y,) = inputs, outputs
    if not floats(x, y) or not len(x):
        return None
    args = abi.IntSamplesArgs(pointer(x), pointer(y), len(x), x.size // len(x), int(Rounding.OWN))
    return [call(Kernel.INT_SAMPLES, args, x, y)]
