"""ONNX Runtime's training checkpoint (`ODTC`): parameters, optimizer moments, step and properties, read only."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import prod
from typing import Any

import numpy as np

from circle_train.checkpoints.safetensors import Data
from circle_train.errors import CheckpointError, ModelError
from circle_train.format.flatbuffer.decode import Table, Tables, decode
from circle_train.ir.tensor_type import Array

IDENTIFIER = b"ODTC"
TABLES: Tables = {
    "Checkpoint": (
        ("version", "int32", 0, ""),
        ("module_state", "ModuleState", None, ""),
        ("optimizer_groups", "[OptimizerGroup]", None, ""),
        ("property_bag", "PropertyBag", None, ""),
    ),
    "ModuleState": (
        ("requires_grad_params", "[Tensor]", None, ""),
        ("frozen_params", "[Tensor]", None, ""),
        ("is_nominal_state", "bool", False, ""),
        ("has_external_data", "bool", False, ""),
    ),
    "Tensor": (
        ("name", "string", None, ""),
        ("doc_string", "string", None, ""),
        ("dims", "[int64]", None, ""),
        ("data_type", "int32", 0, ""),
        ("raw_data", "[uint8]", None, ""),
        ("string_data", "[string]", None, ""),
        ("external_data_offset", "int64", -1, ""),
    ),
    "OptimizerGroup": (
        ("group_name", "string", None, ""),
        ("step", "int64", 0, ""),
        ("initial_learning_rate", "float32", 0.0, ""),
        ("optimizer_states", "[ParameterOptimizerState]", None, ""),
    ),
    "ParameterOptimizerState": (("param_name", "string", None, ""), ("momentums", "[Tensor]", None, "")),
    "PropertyBag": (
        ("ints", "[IntProperty]", None, ""),
        ("floats", "[FloatProperty]", None, ""),
        ("strings", "[StringProperty]", None, ""),
    ),
    "IntProperty": (("name", "string", None, ""), ("value", "int64", 0, "")),
    "FloatProperty": (("name", "string", None, ""), ("value", "float32", 0.0, "")),
    "StringProperty": (("name", "string", None, ""), ("value", "string", None, "")),
}
DTYPES = {1: "<f4", 2: "u1", 3: "i1", 4: "<u2", 5: "<i2", 6: "<i4", 7: "<i8", 9: "?", 10: "<f2", 11: "<f8"}
"""ONNX's numbers of element types."""


@dataclass
class OrtCheckpoint:
    """What such a file holds; arrays are laid out as the ONNX initializers are."""

    trained: dict[str, Array] = field(default_factory=dict)
    frozen: dict[str, Array] = field(default_factory=dict)
    is_nominal: bool = False
    moments: dict[str, tuple[Array, ...]] = field(default_factory=dict)
    """By parameter: first and, with AdamW, second moments. Empty where the file holds no optimizer."""
    step: int = 0
    properties: dict[str, int | float | str] = field(default_factory=dict)

    @property
    def parameters(self) -> dict[str, Array]:
        return {**self.trained, **self.frozen}


def is_ort_checkpoint(data: Data) -> bool:
    """By the identifier."""
    return data[4:8] == IDENTIFIER


def read(data: bytes, external: bytes | None, where: str) -> OrtCheckpoint:
    """Read a checkpoint; `external` is the content of the file `checkpoint.data` beside it, if there is one."""
    try:
        root = decode(data, "Checkpoint", IDENTIFIER, TABLES, f"checkpoint {where}")
    except ModelError as error:
        raise CheckpointError(f"{error}; nothing was changed") from None
    module: Table = root.get("module_state") or {}
    found = OrtCheckpoint(is_nominal=bool(module.get("is_nominal_state", False)))
    for kind, arrays in (("requires_grad_params", found.trained), ("frozen_params", found.frozen)):
        for tensor in module.get(kind, ()):
            arrays[_name(tensor, where)] = _array(tensor, external, found.is_nominal, where)
    groups = root.get("optimizer_groups", ())
    if len(groups) > 1:
        raise _refusal(where, f"it has {len(groups)} optimizer groups, ONNX Runtime writes one")
    for group in groups:
        found.step = int(group.get("step", 0))
        if found.step < 0:
            raise _refusal(where, f"its step is {found.step}, expected a count")
        for state in group.get("optimizer_states", ()):
            moments = [_array(tensor, external, False, where) for tensor in state.get("momentums", ())]
            found.moments[str(state.get("param_name", ""))] = tuple(moments)
    bag: Table = root.get("property_bag") or {}
    for kind, default in (("ints", 0), ("floats", 0.0), ("strings", "")):
        for entry in bag.get(kind, ()):
            value: Any = entry.get("value", default)
            found.properties[_name(entry, where)] = value
    return found


def _array(tensor: Table, external: bytes | None, is_nominal: bool, where: str) -> Array:
    shape = tuple(int(n) for n in tensor.get("dims", ()))
    code = tensor.get("data_type", 0)
    if code not in DTYPES or min(shape, default=0) < 0:
        raise _refusal(where, f"'{tensor.get('name')}' has element type {code} and shape {shape}")
    dtype = np.dtype(DTYPES[code])
    size = prod(shape) * dtype.itemsize
    offset = tensor.get("external_data_offset", -1)
    raw = tensor.get("raw_data", np.empty(0, np.uint8))
    if offset >= 0:
        if external is None:
            raise _refusal(where, f"'{tensor.get('name')}' lies in a file '{where}.data', which is missing")
        raw = np.frombuffer(external, np.uint8)[offset : offset + size]
    if raw.size == 0 and is_nominal:
        return np.zeros(shape, dtype)
    if raw.size != size:
        raise _refusal(
            where, f"'{tensor.get('name')}' of shape {shape} takes {size} bytes, it has {raw.size}"
        )
    values: Array = raw.view(dtype).reshape(shape)
    return values


def _name(entry: Table, where: str) -> str:
    if not entry.get("name"):
        raise _refusal(where, "an entry of it has no name")
    return str(entry["name"])


def _refusal(where: str, found: str) -> CheckpointError:
    return CheckpointError(f"checkpoint {where} cannot be used: {found}; nothing was changed, save it anew")
