"""ONNX to Circle and back; the only place that imports onnx (an extra), and only when it converts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib import import_module
from os import PathLike
from typing import Any

from circle_train.convert.provenance import Provenance
from circle_train.errors import ConversionError
from circle_train.ir import Module
from circle_train.ir.tensor_type import Array

__all__ = ["Provenance", "load_onnx", "load_with_onnx2tf", "verify", "write_back"]


def load_onnx(
    source: Any,
    *,
    engine: str = "direct",
    io: str = "nchw",
    fold_batchnorm: bool = False,
    shapes: Mapping[str, tuple[int, ...]] | None = None,
) -> tuple[Module, Provenance]:
    """A Circle module made from an ONNX model (path, bytes or file object), and its constants' provenance.

    `io="nhwc"` gives image inputs and outputs channels last; `shapes` fixes the symbolic sizes of inputs.
    """
    for name, value, known in (("engine", engine, ("direct", "onnx2tf")), ("io", io, ("nchw", "nhwc"))):
        if value not in known:
            raise ConversionError(f"{name} is '{value}', expected one of {', '.join(known)}")
    result: tuple[Module, Provenance]
    if engine == "onnx2tf":
        result = _import("onnx2tf").convert(source)
    else:
        result = _import("direct").convert(source, io == "nhwc", fold_batchnorm, dict(shapes or {}))
    return result


def load_with_onnx2tf(source: Any) -> Module:
    """A Circle module made by onnx2tf, which runs in a process and, mostly, an environment of its own."""
    module: Module = _import("onnx2tf").convert(source)[0]
    return module


def verify(source: Any, module: Module, seed: int = 0) -> dict[str, float]:
    """By output, the largest difference from the ONNX model on a random input, relative to the largest value.

    The referee is onnxruntime, or where that is missing onnx's own evaluator.
    """
    differences: dict[str, float] = _import("referee").verify(source, module, seed)
    return differences


def write_back(
    provenance: Provenance,
    values: Mapping[str, Array],
    path: str | PathLike[str],
    outputs: Sequence[str] | None = None,
) -> None:
    """Write the ONNX model again, with these values (as the Circle module holds them) in its initializers."""
    _import("writeback").write_back(provenance, values, path, outputs)


def _import(name: str) -> Any:
    try:
        return import_module(f"circle_train.convert.{name}")
    except ModuleNotFoundError as error:
        if error.name is None or error.name.split(".")[0] != "onnx":
            raise
        raise ConversionError(
            "ONNX models need the package onnx, which is not installed; run: pip install 'circle-train[onnx]'"
        ) from error
