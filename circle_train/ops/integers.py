"""How an operator computes on 8 and 16 bit integers, as LiteRT's kernels do: declared in its class, asked by who quantizes.

What is not said is computed in float. Activations have one scale a tensor, weights one for each entry of an axis, biases the
product of both and 32 bits.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import field
from typing import Any

from circle_train.ir import DType, Quantization
from circle_train.record import record


class Scales(enum.Enum):
    """What the scales of an operator's activations have to do with each other."""

    OWN = "own"
    """Each has its own."""
    KEPT = "kept"
    """Outputs have that of the first one."""
    ONE = "one"
    """All have the same one."""


@record
class InIntegers:
    """Which inputs are activations, weights and bias, and what their scales must be."""

    scales: Scales = Scales.OWN
    data: tuple[str, ...] = ("x",)
    """Inputs that are activations; constants among them count as such."""
    weights: Mapping[str, int | None] = field(default_factory=dict)
    """Inputs that must be constants, and the axis whose entries have scales of their own; None: one scale."""
    takes: int = -1
    """The axis of the weights that meets the activation's channels, entry by entry."""
    bias: str = ""
    """The input that counts products of the first activation's and the weights' scales."""
    fixed: Mapping[DType, Quantization] = field(default_factory=dict)
    """The output's scale, where the kernel knows no other."""
    types: tuple[DType, ...] = (DType.INT8, DType.INT16)
    """What activations may be."""
    makes_integers: bool = False
    """Whether the outputs are numbers of their own, without a scale."""
    filler: str = ""
    """The input that only fills up: where it is beyond all numbers it becomes the outermost step, and asks for no range."""
    largest_rank: int = 8
    """Of the first activation."""
    options: Mapping[str, Any] = field(default_factory=dict)
    """Options that its kernel wants."""
    dynamic: bool = False
    """Whether activations may stay float where weights are integers: they are quantized while running."""


ONLY_8 = (DType.INT8,)
OWN = InIntegers()
OWN_8 = InIntegers(types=ONLY_8)
KEPT = InIntegers(Scales.KEPT)
KEPT_8 = InIntegers(Scales.KEPT, types=ONLY_8)
BOTH = InIntegers(data=("x1", "x2"))
SUMS = InIntegers(data=("x1", "x2"), options={"pot_scale_int16": False})
BOTH_8 = InIntegers(data=("x1", "x2"), types=ONLY_8)
TOGETHER = InIntegers(Scales.ONE, data=("xs",))


def fixed(scale: float, zero_point: int, scale16: float | None = None) -> InIntegers:
    """One activation, and an output of a scale that the kernel decides."""
    known = {DType.INT8: Quantization((scale,), (zero_point,))}
    if scale16 is not None:
        known[DType.INT16] = Quantization((scale16,), (0,))
    return InIntegers(fixed=known, types=tuple(known))
