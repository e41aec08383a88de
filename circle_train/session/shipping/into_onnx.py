"""An ONNX model in integers, from the file that training writes to QuantizeLinear and DequantizeLinear."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import numpy as np

from circle_train.errors import ConfigError, ConversionError, DataError
from circle_train.format.atomic import atomic_write
from circle_train.ir import DType, Quantization, Tensor, TensorType
from circle_train.ir.tensor_type import Array
from circle_train.model import Model, load
from circle_train.quantize.calibrate import Observed, observe, range_of
from circle_train.quantize.qdq import ACTIVATION, Qdq
from circle_train.quantize.qdq_floors import floors, weighed_rows
from circle_train.quantize.quantize import Samples
from circle_train.quantize.scales import affine
from circle_train.session.inference import InferenceSession
from circle_train.session.shipping.judging import Judged, Scored, judge_by, listed, refuse_losses
from circle_train.session.shipping.ship import Shipped, calibration, warn_of_floats
from circle_train.settings.quantization import Int8

BATCH = 8


def ship_trained(
    write: Callable[[str], object],
    path: str | os.PathLike[str],
    settings: Int8,
    scored: Scored | None,
    threads: int | None,
) -> Shipped:
    """What training would write, in integers."""
    with tempfile.TemporaryDirectory() as folder:
        written = os.path.join(folder, "trained.onnx")
        write(written)
        return ship_onnx(written, path, settings, scored, threads)


def ship_onnx(
    written: str, path: str | os.PathLike[str], settings: Int8, scored: Scored | None, threads: int | None
) -> Shipped:
    """The ONNX file that training wrote, in integers; it takes and gives floats as before."""
    if settings.scheme != "int8":
        raise ConfigError(
            f"quantize: an .onnx file is shipped in the scheme int8 alone, not {settings.scheme}; export it as .tflite"
        )
    if find_spec("onnx") is None:
        raise ConversionError(
            "quantize: an .onnx file needs the package onnx: pip install 'circle-train[onnx]'"
        )
    onnx: Any = import_module("onnx")
    model = load(written)
    samples = calibration(model, settings)
    if samples is None:
        raise DataError(
            "quantize: the scheme int8 needs calibration samples, a hundred or so; give Int8(calibration=x)"
        )
    qdq = Qdq(onnx.load(written))
    qdq.write(*calibrated(qdq, model, settings, samples, threads))
    content = qdq.model.SerializeToString()
    judged: Judged | None = None
    if settings.validation is not None and scored is not None:
        judged = judge_by(model, *_runner(content, qdq), settings.validation, scored)
        refuse_losses(judged, settings, os.fspath(path))
    with atomic_write(path) as file:
        file.write(content)
    count = len(qdq.products)
    warn_of_floats(qdq.floats, depth=6)
    return Shipped(os.fspath(path), "int8 (QDQ)", count, qdq.floats, os.path.getsize(path), judged)


def observed(shown: Model, samples: Samples, threads: int | None) -> Iterator[list[Array]]:
    """What the outputs hold, batch by batch."""
    infer = InferenceSession(shown, threads=threads)
    first = shown.inputs[0].shape[0] if shown.inputs and shown.inputs[0].shape else 1
    for values in samples(first if first > 0 else BATCH):
        yield listed(infer(*values))


def calibrated(
    qdq: Qdq, model: Model, settings: Int8, samples: Samples, threads: int | None
) -> tuple[dict[str, Quantization], dict[str, Array]]:
    """The scales of activations by name, and the means of the channels of those that meet weights."""
    rows = weighed_rows(qdq)
    averaged = qdq.weighed if settings.correct_bias else []
    tensors = {
        name: Tensor(name, TensorType(DType.FLOAT32, ()))
        for name in dict.fromkeys([*qdq.observed, *qdq.weighed, *rows])
    }
    shown = load(qdq.shown(list(tensors)), **model.options)

    def narrow(found: Mapping[Tensor, Observed]) -> None:
        highs = {tensor.name: one.high for tensor, one in found.items()}
        tops = {name: found[tensors[name]].top for name in rows if np.isfinite(found[tensors[name]].top)}
        lowest = floors(qdq, tops, highs)
        for tensor, one in found.items():
            one.low = max(one.low, lowest.get(tensor.name, one.low))

    found = observe(
        list(tensors.values()), {tensors[name] for name in averaged}, lambda: observed(shown, samples, threads),
        settings.ranges != "minmax", {tensors[name] for name in rows}, narrow,
    )  # fmt: skip
    ranges = {
        tensor.name: range_of(one, settings.ranges, settings.percentile, ACTIVATION)
        for tensor, one in found.items()
    }
    wanted = {*qdq.observed, *qdq.weighed} - set(qdq.sources)
    scales = {name: affine(*ranges[name], ACTIVATION) for name in ranges if name in wanted}
    means = {name: found[tensors[name]].mean for name in averaged}
    return scales, {name: by_channel(qdq, name, mean) for name, mean in means.items() if mean is not None}


def by_channel(qdq: Qdq, name: str, mean: Array) -> Array:
    """Images by their channels, rows by their entries."""
    is_image = any(node.op_type == "Conv" for node in qdq.readers[name] if node in qdq.products)
    kept = 0 if is_image else mean.ndim - 1
    averaged: Array = mean.mean(axis=tuple(i for i in range(mean.ndim) if i != kept))
    return averaged


def _runner(content: bytes, qdq: Qdq) -> tuple[str, Any]:
    """onnxruntime, or ours."""
    with suppress(ImportError):
        runtime: Any = import_module("onnxruntime")
        options = runtime.SessionOptions()
        options.log_severity_level = 4
        session = runtime.InferenceSession(content, options, providers=["CPUExecutionProvider"])
        inputs = [entry.name for entry in session.get_inputs()]
        return "onnxruntime", lambda values: session.run(
            None, {name: np.asarray(v, np.float32) for name, v in zip(inputs, values, strict=True)}
        )
    infer = InferenceSession(load(content))
    return "circle_train", lambda values: listed(infer(*values))
