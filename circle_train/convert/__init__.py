"""ONNX to Circle and back; the only place that imports onnx (an extra), and only where our own reader does not do."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib import import_module
from os import PathLike
from typing import TYPE_CHECKING, Any

from circle_train.brought import brought
from circle_train.errors import ConversionError, refusing
from circle_train.ir import Module
from circle_train.ir.tensor_type import Array

if TYPE_CHECKING:
    from circle_train.convert.building.provenance import Provenance

__all__ = [
    "FIRST_BYTES",
    "OPTIONS",
    "Provenance",
    "load_onnx",
    "load_with_onnx2tf",
    "verify",
    "with_head",
    "write_back",
]

HOMES = {"building.provenance": ("Provenance",)}
__getattr__ = brought(__name__, HOMES)
OPTIONS = ("engine", "io", "fold_batchnorm", "shapes", "inputs")
"""Of load_onnx."""
FIRST_BYTES = frozenset(
    bytes([field << 3 | wire])
    for field, wire in ((1, 0), (2, 2), (3, 2), (4, 2), (5, 0), (6, 2), (7, 2), (8, 2), (14, 2))
)
"""How an ONNX file can begin: with a field of ModelProto, in any order."""


def load_onnx(
    source: Any,
    *,
    engine: str = "direct",
    io: str = "nchw",
    fold_batchnorm: bool = False,
    shapes: Mapping[str, tuple[int, ...]] | None = None,
    inputs: Mapping[str, Any] | None = None,
) -> tuple[Module, Provenance]:
    """A Circle module made from an ONNX model (path, bytes or file object), and its constants' provenance.

    `io="nhwc"` gives image inputs and outputs channels last; `shapes` fixes the symbolic sizes of inputs,
    `inputs` the values of some.
    """
    for name, value, known in (("engine", engine, ("direct", "onnx2tf")), ("io", io, ("nchw", "nhwc"))):
        if value not in known:
            raise ConversionError(f"{name} is '{value}', expected one of {', '.join(known)}")
    result: tuple[Module, Provenance]
    with _needing_onnx(), refusing(ConversionError, "the ONNX model", "check it with onnx.checker"):
        if engine == "onnx2tf" and (fixed := [*(inputs or ()), *(shapes or ())]):
            raise ConversionError(f"'{fixed[0]}': only engine='direct' fixes inputs and shapes")
        if engine == "onnx2tf":
            result = _import("other.onnx2tf").convert(source)
        else:
            direct = _import("direct")
            result = direct.convert(source, io == "nhwc", fold_batchnorm, dict(shapes or {}), inputs or {})
    return result


def load_with_onnx2tf(source: Any) -> Module:
    """A Circle module made by onnx2tf, which runs in a process and, mostly, an environment of its own."""
    with _needing_onnx():
        module: Module = _import("other.onnx2tf").convert(source)[0]
    return module


def with_head(provenance: Provenance, outputs: int, scores: str) -> bytes:
    """The ONNX model that was loaded with a new last layer of so many outputs."""
    with _needing_onnx(), refusing(ConversionError, "the ONNX model", "check it with onnx.checker"):
        made: bytes = _import("back.new_head").with_head(provenance, outputs, scores)
    return made


def verify(
    source: Any, module: Module, seed: int = 0, inputs: Mapping[str, Any] | None = None
) -> dict[str, float]:
    """By output, the largest difference from the ONNX model on a random input, relative to the largest value.

    `inputs` are the values that the module was made with. The referee is onnxruntime, or where that is missing onnx's
    own evaluator.
    """
    with _needing_onnx():
        differences: dict[str, float] = _import("other.referee").verify(source, module, seed, inputs or {})
    return differences


def write_back(
    provenance: Provenance,
    values: Mapping[str, Array],
    path: str | PathLike[str],
    outputs: Sequence[str] | None = None,
    metadata: Mapping[str, str] | None = None,
) -> None:
    """Write the ONNX model again, with these values (as the Circle module holds them) in its initializers."""
    with _needing_onnx():
        _import("back.writeback").write_back(provenance, values, path, outputs, metadata)


def _import(name: str) -> Any:
    return import_module(f"circle_train.convert.{name}")


@contextmanager
def _needing_onnx() -> Iterator[None]:
    """Reading most models takes no package; some operators, verifying and choosing outputs do."""
    try:
        yield
    except ModuleNotFoundError as error:
        if error.name is None or error.name.split(".")[0] != "onnx":
            raise
        raise ConversionError(
            "this needs the package onnx (operators that the ONNX standard defines by others, verifying, writing "
            ".onnx with other outputs), which is not installed; run: pip install 'circle-train[onnx]'"
        ) from error
