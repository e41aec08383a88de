"""What a shipped model is worth: the same samples through the floats and through the file, by LiteRT where installed."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any

import numpy as np

from circle_train import format
from circle_train.data.dataset import Dataset, Stream
from circle_train.data.opening import open_any
from circle_train.errors import ConfigError
from circle_train.fitting.metrics.scores import Scores
from circle_train.ir import Module, Quantization, Tensor
from circle_train.ir.tensor_type import Array
from circle_train.model import Model
from circle_train.ops.numeric.quantize import dequantize, quantize
from circle_train.record import record
from circle_train.runtime import litert
from circle_train.session.inference import InferenceSession
from circle_train.session.peers import LITERT
from circle_train.settings.quantization import Int8

BATCH = 8
"""Samples that the judge takes at a time, where the file lets it."""
Runs = Callable[[Sequence[Array]], list[Array]]


@record
class Scored:
    """What a training session measures: its targets, and metrics on outputs of floats."""

    targets: Sequence[Tensor]
    metrics: Scores


@record
class Judged:
    """Metrics in floats and as shipped."""

    runtime: str
    before: dict[str, float]
    after: dict[str, float]

    @property
    def lines(self) -> list[str]:
        """A metric each."""
        return [
            f"{name}: {self.before[name]:.4f} in floats, {value:.4f} as shipped ({self.runtime})"
            for name, value in self.after.items()
        ]

    @property
    def loss(self) -> float:
        """How much the first metric fell."""
        name = next(iter(self.after))
        return self.before[name] - self.after[name]


def judge(model: Model, shipped: Module, pair: Any, scored: Scored) -> Judged:
    """Both on the same samples."""
    return judge_by(model, *_shipped(shipped), pair, scored)


def judge_by(model: Model, runtime: str, runs: Runs, pair: Any, scored: Scored) -> Judged:
    """The same of what `runs` computes."""
    x, y = pair if isinstance(pair, tuple) and len(pair) == 2 else (pair, None)
    data = open_any(x, y, model.module.main.inputs, scored.targets, model.description)
    if not scored.metrics.result():
        raise ConfigError(
            "Int8: validation measures the session's metrics, and it has none; give TrainConfig(metrics=['accuracy'])"
        )
    floats = InferenceSession(model)
    before = measure(lambda values: listed(floats(*values)), data, scored)
    return Judged(runtime, before, measure(runs, data, scored))


def measure(runs: Runs, data: Dataset | Stream, scored: Scored) -> dict[str, float]:
    """The metrics of what `runs` makes of the samples."""
    metrics = scored.metrics.fresh()
    for inputs, targets in data.batches(BATCH):
        metrics.update(runs([np.asarray(value) for value in inputs]), targets)
    return metrics.result()


def refuse_losses(judged: Judged, settings: Int8, path: str) -> None:
    """Say so, or refuse, where more is lost than was allowed."""
    if settings.tolerance is None or judged.loss <= settings.tolerance:
        return
    said = f"{path}: {judged.lines[0]}, a loss of {judged.loss:.4f} where {settings.tolerance:g} is allowed"
    remedy = "train with TrainConfig(quantize=…), give more calibration samples, or allow a larger tolerance"
    if settings.on_loss == "refuse":
        raise ConfigError(f"{said}; nothing was written: {remedy}")
    warnings.warn(f"{said}; {remedy}", stacklevel=5)


def _shipped(module: Module) -> tuple[str, Runs]:
    """LiteRT's interpreter on the file that is to be written, or ours."""
    main = module.main
    for name in LITERT:
        try:
            package = import_module(name)
        except ImportError:
            continue
        content = format.write(litert.for_litert(module), "TFL3")
        return "LiteRT", _in_litert(package.Interpreter(model_content=content), main.inputs, main.outputs)
    infer = InferenceSession(Model(module))

    def run(values: Sequence[Array]) -> list[Array]:
        made = listed(infer(*[stored(value, t) for value, t in zip(values, main.inputs, strict=True)]))
        return [real(value, tensor.quantization) for value, tensor in zip(made, main.outputs, strict=True)]

    return "circle_train", run


def _in_litert(interpreter: Any, inputs: Sequence[Tensor], outputs: Sequence[Tensor]) -> Runs:
    interpreter.allocate_tensors()
    given = {detail["name"]: detail for detail in interpreter.get_input_details()}
    made = {detail["name"]: detail for detail in interpreter.get_output_details()}

    def run(values: Sequence[Array]) -> list[Array]:
        sizes = [tuple(given[tensor.name]["shape"]) for tensor in inputs]
        if all(size == value.shape for size, value in zip(sizes, values, strict=True)):
            return once(values)
        pieces = [once([value[i : i + 1] for value in values]) for i in range(len(values[0]))]
        return [np.concatenate(group) for group in zip(*pieces, strict=True)]

    def once(values: Sequence[Array]) -> list[Array]:
        for tensor, value in zip(inputs, values, strict=True):
            interpreter.set_tensor(given[tensor.name]["index"], stored(value, tensor))
        interpreter.invoke()
        return [real(interpreter.get_tensor(made[t.name]["index"]), t.quantization) for t in outputs]

    return run


def listed(made: Any) -> list[Array]:
    """Of a session that gives one output by itself."""
    return made if isinstance(made, list) else [made]


def stored(value: Array, tensor: Tensor) -> Array:
    """A sample as the shipped model takes it."""
    if tensor.quantization is None:
        return np.asarray(value, tensor.dtype.numpy)
    return quantize(np.asarray(value, np.float32), tensor.quantization, tensor.dtype)


def real(value: Array, quantization: Quantization | None) -> Array:
    """An output as the floats would give it."""
    return np.array(value) if quantization is None else dequantize(value, quantization)
