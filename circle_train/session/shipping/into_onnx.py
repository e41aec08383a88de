"""An ONNX model in integers, from the file that training writes to QuantizeLinear and DequantizeLinear."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import suppress
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import numpy as np

from circle_train.errors import ConfigError, ConversionError, DataError
from circle_train.format.atomic import atomic_write
from circle_train.ir import DType, Tensor, TensorType
from circle_train.ir.tensor_type import Array
from circle_train.model import Model, load
from circle_train.quantize.calibrate import observe, range_of
from circle_train.quantize.qdq import ACTIVATION, Qdq
from circle_train.quantize.quantize import Samples
from circle_train.quantize.scales import affine
from circle_train.session.inference import InferenceSession
from circle_train.session.shipping.judging import Judged, Scored, judge_by, listed, refuse_losses
from circle_train.session.shipping.ship import Shipped, calibration
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
    names = list(dict.fromkeys([*qdq.observed, *qdq.weighed]))
    tensors = [Tensor(name, TensorType(DType.FLOAT32, ())) for name in names]
    shown = load(qdq.shown(names), **model.options)
    found = observe(tensors, (), lambda: observed(shown, samples, threads), settings.ranges != "minmax")
    ranges = {
        t.name: range_of(one, settings.ranges, settings.percentile, ACTIVATION) for t, one in found.items()
    }
    means = channel_means(shown, names, qdq, samples, threads) if settings.correct_bias else {}
    qdq.write({name: affine(*ranges[name], ACTIVATION) for name in ranges if name not in qdq.sources}, means)
    content = qdq.model.SerializeToString()
    judged: Judged | None = None
    if settings.validation is not None and scored is not None:
        judged = judge_by(model, *_runner(content, qdq), settings.validation, scored)
        refuse_losses(judged, settings, os.fspath(path))
    with atomic_write(path) as file:
        file.write(content)
    count = len(qdq.products)
    return Shipped(os.fspath(path), "int8 (QDQ)", count, (), os.path.getsize(path), judged)


def observed(shown: Model, samples: Samples, threads: int | None) -> Iterator[list[Array]]:
    """What the outputs hold, batch by batch."""
    infer = InferenceSession(shown, threads=threads)
    first = shown.inputs[0].shape[0] if shown.inputs and shown.inputs[0].shape else 1
    for values in samples(first if first > 0 else BATCH):
        yield listed(infer(*values))


def channel_means(
    shown: Model, names: list[str], qdq: Qdq, samples: Samples, threads: int | None
) -> dict[str, Array]:
    """Of what meets weights: images by their channels, rows by their entries."""
    images = {node.input[0] for node in qdq.products if node.op_type == "Conv"}
    sums: dict[str, Array] = {}
    count = 0
    for values in observed(shown, samples, threads):
        count += 1
        for name, value in zip(names, values, strict=True):
            if name in qdq.weighed:
                others = tuple(i for i in range(value.ndim) if i != (1 if name in images else value.ndim - 1))
                sums[name] = sums.get(name, 0.0) + value.mean(axis=others, dtype=np.float64)
    return {name: total / count for name, total in sums.items()}


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
