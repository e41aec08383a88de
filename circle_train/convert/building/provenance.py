"""Where each Circle constant came from in the ONNX file, and the way back."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

import numpy as np

from circle_train.errors import ModelError, refusing
from circle_train.ir.tensor_type import Array
from circle_train.record import record

METADATA = "circle_train.conversion"
"""Name of the file's metadata that says which engine made it."""
CHANNELS_LAST = "channels_last"
"""There: inputs and outputs that the module has channels last and the ONNX model channels first."""
Shape = tuple[int, ...]


class Step(Protocol):
    """One invertible change of an initializer's elements."""

    def forward(self, value: Array) -> Array: ...

    def inverse(self, value: Array) -> Array: ...


@record
class Transposed:
    permutation: Shape

    def forward(self, value: Array) -> Array:
        return np.transpose(value, self.permutation)

    def inverse(self, value: Array) -> Array:
        return np.transpose(value, np.argsort(self.permutation).tolist())


@record
class Reshaped:
    before: Shape
    after: Shape

    def forward(self, value: Array) -> Array:
        return value.reshape(self.after)

    def inverse(self, value: Array) -> Array:
        return value.reshape(self.before)


@record
class Converted:
    """Another element type, e.g. a float16 initializer computed in float32."""

    before: str
    after: str

    def forward(self, value: Array) -> Array:
        return value.astype(self.after)

    def inverse(self, value: Array) -> Array:
        return value.astype(self.before)


@dataclass(frozen=True, eq=False)
class Scaled:
    """value · factor + offset: what folding a normalisation did to a weight or bias."""

    factor: Array
    offset: Array

    def forward(self, value: Array) -> Array:
        return np.asarray(value * self.factor + self.offset, value.dtype)

    def inverse(self, value: Array) -> Array:
        return np.asarray((value - self.offset) / self.factor, value.dtype)


@dataclass(frozen=True, eq=False)
class Widened:
    """Integers as the reals that they stand for; scale and zero broadcast over them."""

    scale: Array
    zero: Array
    stored: str
    """Element type of the integers, which may use fewer `bits` of it."""
    bits: int | None = None

    def forward(self, value: Array) -> Array:
        return np.asarray((value.astype(np.float64) - self.zero) * self.scale, np.float32)

    def inverse(self, value: Array) -> Array:
        limits = np.iinfo(self.stored)
        unused = limits.bits - (self.bits or limits.bits)
        steps = np.rint(value.astype(np.float64) / self.scale) + self.zero
        return np.asarray(np.clip(steps, limits.min >> unused, limits.max >> unused), self.stored)


@record
class Lineage:
    """The initializer that a constant is, and what was done to it."""

    name: str
    steps: tuple[Step, ...] = ()

    def then(self, step: Step) -> Lineage:
        return Lineage(self.name, (*self.steps, step))

    @refusing(ModelError, "the layout of an initializer", "make the package anew")
    def to_circle(self, value: Array) -> Array:
        for step in self.steps:
            value = step.forward(value)
        return np.asarray(value, order="C")

    @refusing(ModelError, "the layout of an initializer", "make the package anew")
    def to_onnx(self, value: Array) -> Array:
        for step in reversed(self.steps):
            value = step.inverse(value)
        return np.asarray(value, order="C")


@record
class Provenance:
    """What is needed to put trained values back into the ONNX file that a module was made from."""

    source: Path | bytes | None
    """The ONNX file; None where only its names and layouts came along, in a package."""
    digest: str
    """Of the file, so that values are never put into another one."""
    lineages: Mapping[str, Lineage] = field(default_factory=dict)
    """By the name of the Circle constant, which is the initializer's; in the order of the initializers."""
    engine: str = "direct"

    def to_circle(self, name: str, value: Array) -> Array:
        """An initializer's value as the constant of that name holds it; other constants as they are."""
        lineage = self.lineages.get(name)
        return value if lineage is None else lineage.to_circle(np.asarray(value))

    def to_onnx(self, name: str, value: Array) -> Array:
        """A constant's value in the shape and order of its initializer; other constants as they are."""
        lineage = self.lineages.get(name)
        return value if lineage is None else lineage.to_onnx(np.asarray(value))
