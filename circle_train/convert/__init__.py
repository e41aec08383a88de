"""ONNX to Circle and back; the only place that imports onnx (an extra), and only when something is converted."""

from __future__ import annotations

from collections.abc import Mapping
from os import PathLike
from typing import Any

from circle_train.convert.provenance import Provenance
from circle_train.errors import ConversionError
from circle_train.ir import Module
from circle_train.ir.tensor_type import Array

__all__ = ["Provenance", "load_onnx", "write_back"]


def load_onnx(
    source: Any,
    *,
    io: str = "nchw",
    fold_batchnorm: bool = False,
    shapes: Mapping[str, tuple[int, ...]] | None = None,
) -> tuple[Module, Provenance]:
    """A Circle module made from an ONNX model (path, bytes or file object), and where its constants came from.

    `io="nhwc"` gives image inputs and outputs channels last; `shapes` fixes the symbolic sizes of inputs.
    """
    direct = _import("direct")
    result: tuple[Module, Provenance] = direct.convert(source, io == "nhwc", fold_batchnorm, dict(shapes or {}))
    return result


def write_back(provenance: Provenance, values: Mapping[str, Array], path: str | PathLike[str]) -> None:
    """Write the ONNX model again, with these values (as the Circle module holds them) in its initializers."""
    _import("writeback").write_back(provenance, values, path)


def _import(name: str) -> Any:
    from importlib import import_module

    try:
        return import_module(f"circle_train.convert.{name}")
    except ModuleNotFoundError as error:
        if error.name is None or error.name.split(".")[0] != "onnx":
            raise
        raise ConversionError(
            "ONNX models need the package onnx, which is not installed; run: pip install 'circle-train[onnx]'"
        ) from error
