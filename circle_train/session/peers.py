"""Other runtimes on an exported file: LiteRT and onnxruntime, if installed, say whether they take it, and agree."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from importlib import import_module
from typing import Any

import numpy as np

from circle_train.errors import ConversionError
from circle_train.info import TensorInfo
from circle_train.ir.size import Size, evaluated
from circle_train.ir.tensor_type import Array
from circle_train.model import Model, load
from circle_train.ops.open.sizes import input_sizes
from circle_train.record import record
from circle_train.session.inference import InferenceSession

LITERT = ("ai_edge_litert.interpreter", "tflite_runtime.interpreter", "tensorflow.lite")
"""Where an interpreter of .tflite files may come from."""
OPEN = (1, 16, 96, 512, 576, 16000)
"""What open sizes besides the batch are, one after the other until they suit the model."""
BATCH = 2
Runs = Callable[[str, Mapping[str, Array]], dict[str, Array]]


@record
class Agreement:
    """What another runtime made of a file."""

    runtime: str
    differences: dict[str, float]
    """By output, the largest one, as a part of the output's range."""

    def __str__(self) -> str:
        worst = max(self.differences.values(), default=0.0)
        return f"{self.runtime} runs it; largest difference on random inputs {worst:.1e} of an output's range"


def compare(path: str | os.PathLike[str], seed: int = 0) -> Agreement | None:
    """Run an exported file on random inputs in the runtime that is installed for it, and here; None where none is."""
    name = os.fspath(path)
    found = _runtime_for(name)
    if found is None:
        return None
    label, runs = found
    model = load(name)
    infer = InferenceSession(model)
    failure: Exception | None = None
    for size in OPEN:
        random = np.random.default_rng(seed)
        shapes = _shapes(model, size)
        feeds = {info.name: _random(info, s, random) for info, s in zip(model.inputs, shapes, strict=True)}
        try:
            ours = dict(zip((t.name for t in model.outputs), infer.run(None, feeds), strict=True))
            theirs = runs(name, feeds)
        except (
            Exception
        ) as error:  # of foreign packages, which have no class in common, or of sizes that do not suit
            failure = failure or error
            continue
        return Agreement(
            label, {key: _distance(ours[key], value) for key, value in theirs.items() if key in ours}
        )
    reason = " ".join(str(failure).split())
    raise ConversionError(
        f"{name}: {label} refuses the file ({reason}); report this with the model"
    ) from failure


def _runtime_for(name: str) -> tuple[str, Runs] | None:
    suffix = os.path.splitext(name)[1].lower()
    candidates = {".tflite": LITERT, ".onnx": ("onnxruntime",)}.get(suffix, ())
    for module in candidates:
        try:
            package = import_module(module)
        except ImportError:
            continue
        runs = _in_onnxruntime if suffix == ".onnx" else _in_litert
        return ("onnxruntime" if suffix == ".onnx" else "LiteRT"), partial(runs, package)
    return None


def _in_litert(package: Any, path: str, feeds: Mapping[str, Array]) -> dict[str, Array]:
    interpreter = package.Interpreter(path)
    details = {detail["name"]: detail for detail in interpreter.get_input_details()}
    for name, value in feeds.items():
        if tuple(details[name]["shape"]) != value.shape:
            interpreter.resize_tensor_input(details[name]["index"], value.shape)
    interpreter.allocate_tensors()
    for name, value in feeds.items():
        interpreter.set_tensor(details[name]["index"], value)
    interpreter.invoke()
    return {d["name"]: interpreter.get_tensor(d["index"]) for d in interpreter.get_output_details()}


def _in_onnxruntime(package: Any, path: str, feeds: Mapping[str, Array]) -> dict[str, Array]:
    options = package.SessionOptions()
    options.log_severity_level = 4
    session = package.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    names: Sequence[str] = [output.name for output in session.get_outputs()]
    return dict(zip(names, session.run(names, dict(feeds)), strict=True))


def _shapes(model: Model, open_size: int) -> list[tuple[int, ...]]:
    """The inputs' shapes: what must be equal is, and what is a first axis somewhere is the batch."""
    sizes = input_sizes(model.module.main)
    batch = {name for shape in sizes for n in shape[:1] if isinstance(n, Size) for name in n.symbols()}
    names = {name for shape in sizes for n in shape if isinstance(n, Size) for name in n.symbols()}
    numbers = dict.fromkeys(names, open_size) | dict.fromkeys(batch, BATCH)
    return [tuple(evaluated(size, numbers) for size in shape) for shape in sizes]


def _random(info: TensorInfo, shape: tuple[int, ...], random: np.random.Generator) -> Array:
    """Floats around zero, small whole numbers, any bytes."""
    kind = np.dtype(info.dtype)
    if kind.kind == "f":
        return random.standard_normal(shape).astype(kind)
    if kind in (np.int8, np.uint8):
        low = int(np.iinfo(kind).min)
        return random.integers(low, low + 256, shape).astype(kind)
    return random.integers(0, 2, shape).astype(kind)


def _distance(ours: Array, theirs: Array) -> float:
    if ours.shape != theirs.shape:
        return float("inf")
    one, two = np.asarray(ours, np.float64), np.asarray(theirs, np.float64)
    same = (one == two) | (np.isnan(one) & np.isnan(two))
    gap = float(np.abs(np.where(same, 0, one - two)).max(initial=0))
    return gap / max(float(np.abs(two[np.isfinite(two)]).max(initial=0)), 1e-6)
