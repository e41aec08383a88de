"""New weights into the model that was loaded; everything else stays as the file had it."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from circle_train import format
from circle_train.errors import ConfigError
from circle_train.ir import Buffer, Module, Tensor
from circle_train.ir.tensor_type import Array
from circle_train.ops.quantize import quantize
from circle_train.train.parameters import Parameter
from circle_train.train.state import State

if TYPE_CHECKING:
    from circle_train.model import Model


def export(model: Model, state: State, path: str | os.PathLike[str]) -> None:
    """Write the inference model; the suffix decides the format."""
    if os.fspath(path).lower().endswith(".onnx"):
        export_onnx(model, state, path)
    else:
        format.save(with_values(model.module, state), path)


def export_onnx(model: Model, state: State, path: str | os.PathLike[str]) -> None:
    """Trained values back into the very ONNX file that was loaded."""
    if model.provenance is None:
        raise ConfigError(
            f"{os.fspath(path)}: the model did not come from ONNX; export it as .circle or .tflite"
        )
    from circle_train import convert

    values = {
        name: state.value(name)
        for name, parameter in state.parameters.items()
        if _is_changed(state, parameter)
    }
    convert.write_back(model.provenance, values, path)


def with_values(module: Module, state: State) -> Module:
    """A module that shares everything with the loaded one but the buffers of changed parameters."""
    fresh: dict[Buffer, Buffer] = {}
    for name, parameter in state.parameters.items():
        root = parameter.root
        if root.buffer is not None and _is_changed(state, parameter):
            fresh[root.buffer] = replace(root.buffer, bytes=encode(root, state.value(name)))
    return format.with_buffers(module, fresh)


def encode(root: Tensor, value: Array) -> Array:
    """A float32 value as the bytes that the file's tensor holds."""
    assert root.dtype.numpy is not None
    if root.quantization is not None and not root.dtype.is_float:
        value = quantize(value, root.quantization, root.dtype)
    return np.ascontiguousarray(value, root.dtype.numpy).reshape(-1).view(np.uint8)


def _is_changed(state: State, parameter: Parameter) -> bool:
    """Frozen parameters that nobody set are still views of the file."""
    return bool(state.value(parameter.name).flags.writeable)
