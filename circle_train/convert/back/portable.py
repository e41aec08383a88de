"""A provenance as data that a file can hold, so that a package knows the names and layouts of the ONNX model."""

from __future__ import annotations

import base64
from typing import Any

import numpy as np

from circle_train.convert.back import ENTRY
from circle_train.convert.building.provenance import (
    Converted,
    Lineage,
    Provenance,
    Reshaped,
    Scaled,
    Step,
    Transposed,
    Widened,
)
from circle_train.errors import FOREIGN, ModelError
from circle_train.ir.tensor_type import Array


def describe(provenance: Provenance) -> dict[str, Any]:
    """The provenance without the path of the ONNX file, which stays where it is."""
    steps = {
        name: [_describe_step(step) for step in line.steps] for name, line in provenance.lineages.items()
    }
    return {"digest": provenance.digest, "engine": provenance.engine, "initializers": steps}


def restore(data: dict[str, Any]) -> Provenance:
    """The inverse; its file is unknown, so nothing can be written back before somebody names it."""
    try:
        lineages = {
            name: Lineage(name, tuple(_restore_step(*step) for step in steps))
            for name, steps in data["initializers"].items()
        }
        return Provenance(None, str(data["digest"]), lineages, str(data["engine"]))
    except FOREIGN as error:
        raise ModelError(f"metadata '{ENTRY}' is damaged ({error!r}); make the package anew") from None


def _describe_step(step: Step) -> list[Any]:
    if isinstance(step, Transposed):
        return ["transposed", [int(axis) for axis in step.permutation]]
    if isinstance(step, Reshaped):
        return ["reshaped", [int(n) for n in step.before], [int(n) for n in step.after]]
    if isinstance(step, Converted):
        return ["converted", step.before, step.after]
    if isinstance(step, Widened):
        facts = ["widened", _text(step.scale), _text(step.zero), step.stored]
        return facts if step.bits is None else [*facts, step.bits]
    assert isinstance(step, Scaled)
    return ["scaled", _text(step.factor), _text(step.offset)]


def _restore_step(kind: str, *settings: Any) -> Step:
    if kind == "transposed":
        return Transposed(tuple(settings[0]))
    if kind == "reshaped":
        return Reshaped(tuple(settings[0]), tuple(settings[1]))
    if kind == "converted":
        return Converted(*settings)
    if kind == "scaled":
        return Scaled(*(_array(text) for text in settings))
    if kind == "widened":
        bits = int(settings[3]) if len(settings) > 3 else None
        return Widened(_array(settings[0]), _array(settings[1]), np.dtype(settings[2]).name, bits)
    raise ValueError(f"step '{kind}'")


def _text(array: Array) -> list[Any]:
    """Element type, shape and elements."""
    raw = np.asarray(array)
    return [raw.dtype.str, list(raw.shape), base64.b64encode(raw.tobytes()).decode()]


def _array(text: list[Any]) -> Array:
    dtype, shape, elements = text
    array: Array = np.frombuffer(base64.b64decode(elements), np.dtype(dtype)).reshape(shape)
    return array
