"""A session's model in integers: calibrated by samples, judged, and written."""

from __future__ import annotations

import logging
import os
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from circle_train.data.dataset import Dataset, Stream
from circle_train.data.opening import open_any
from circle_train.errors import ConfigError, ModelError
from circle_train.ir import Module, Tensor
from circle_train.ir.tensor_type import Array
from circle_train.model import Model
from circle_train.passes.integers.as_shipped import Rounding
from circle_train.quantize.quantize import Observe, Quantized, Samples, quantize
from circle_train.record import record
from circle_train.runtime import litert
from circle_train.session.inference import InferenceSession
from circle_train.session.shipping.judging import Judged, Scored, judge, listed, refuse_losses
from circle_train.settings.quantization import Int8

LOG = logging.getLogger(__name__)
OBSERVED_BYTES = 256 << 20
"""Of what is observed in one batch."""
LARGEST_BATCH = 32
LOWEST = {"int8": -(1 << 7), "int16x8": -(1 << 15)}


@record
class Shipped:
    """What a model became on its way to the device; `print` it."""

    path: str
    scheme: str
    count: int
    """Operators in fewer bits."""
    floats: tuple[str, ...]
    """Operators that stay float, each with the reason."""
    nbytes: int
    judged: Judged | None = None

    @property
    def facts(self) -> dict[str, Any]:
        """For machines."""
        judged = self.judged
        measured = (
            {} if judged is None else {"before": judged.before, "after": judged.after, "by": judged.runtime}
        )
        return {
            "scheme": self.scheme,
            "operators": self.count,
            "floats": list(self.floats),
            "bytes": self.nbytes,
            **measured,
        }

    def __str__(self) -> str:
        lines = [f"{self.path}: {self.scheme}, {self.count} operators, {self.nbytes / 1e6:.2f} MB"]
        lines += [f"  stays float: {text}" for text in self.floats]
        return "\n".join(
            [*lines, *(f"  {text}" for text in self.judged.lines if self.judged)] if self.judged else lines
        )


def ship(
    model: Model,
    path: str | os.PathLike[str],
    settings: Int8,
    scored: Scored | None = None,
    threads: int | None = None,
    rounding: Rounding | None = None,
) -> Shipped:
    """Write the model as the settings say; not at all if it then loses more than they allow."""
    made = quantized(model, settings, threads, rounding)
    judged = None
    if settings.validation is not None:
        if scored is None:
            raise ConfigError("Int8: validation measures what a training session measures; leave it out here")
        judged = judge(model, made.module, settings.validation, scored)
        refuse_losses(judged, settings, os.fspath(path))
    warn_of_floats(made.floats)
    litert.save(made.module, path)
    shipped = Shipped(
        os.fspath(path), settings.scheme, made.count, made.floats, os.path.getsize(path), judged
    )
    LOG.info("%s", shipped)
    return shipped


def warn_of_floats(floats: Sequence[str], depth: int = 5) -> None:
    """The first few of what stays; `depth`: where the caller of the session is."""
    if floats:
        shown = "; ".join(floats[:4]) + ("; …" if len(floats) > 4 else "")
        warnings.warn(f"{len(floats)} operator(s) stay float: {shown}", stacklevel=depth)


def as_settings(given: Any) -> Int8:
    """The settings, or those of a scheme by its name."""
    if isinstance(given, str):
        return Int8(scheme=given)
    if not isinstance(given, Int8):
        raise ConfigError(f"quantize is {given!r:.60}, expected ct.Int8(…) or the name of a scheme")
    return given


def quantized(
    model: Model, settings: Int8, threads: int | None = None, rounding: Rounding | None = None
) -> Quantized:
    """The model in integers, in the scales that training rounded to where it did."""
    fits = rounding is not None and settings.needs_samples and rounding.low == LOWEST[settings.scheme]
    known = rounding.scales if rounding is not None and fits else {}
    return quantize(model.module, settings, calibration(model, settings), runner(threads), known)


def calibration(model: Model, settings: Int8) -> Samples | None:
    """The samples that the settings bring."""
    if not settings.needs_samples or settings.calibration is None:
        return None
    data = open_any(settings.calibration, None, model.module.main.inputs, [], model.description)
    return samples_of(data, settings.samples)


def samples_of(data: Dataset | Stream, most: int) -> Samples:
    """Inputs, evenly from all samples."""

    def batches(count: int) -> Iterator[list[Array]]:
        left, order = most, None
        if isinstance(data, Dataset) and len(data) > left:
            order = np.linspace(0, len(data) - 1, left).round().astype(np.int64)
        for values, _ in data.batches(count, order) if order is not None else data.batches(count):
            yield [np.asarray(value)[:left] for value in values]
            left -= len(values[0])
            if left <= 0:
                return

    return batches


def runner(threads: int | None) -> Observe:
    """What runs a module over samples."""

    def run(
        module: Module, samples: Samples, tensors: Sequence[Tensor]
    ) -> Callable[[], Iterable[Sequence[Array]]]:
        return lambda: observed(module, samples, tensors, threads)

    return run


def observed(
    module: Module, samples: Samples, tensors: Sequence[Tensor], threads: int | None
) -> Iterator[list[Array]]:
    """What the tensors hold, batch by batch; in batches of the file's own size where it runs at no other."""
    graph = module.main.copy()
    twins = {tensor.origin: tensor for tensor in graph.all_tensors()}
    graph.outputs = [twins[tensor] for tensor in tensors]
    carried = {key: value for key, value in module.carried.items() if key != "signatures"}
    shown = replace(module, graphs=[graph, *module.graphs[1:]], carried=carried)
    infer = InferenceSession(Model(shown), threads=threads)
    own = max(graph.inputs[0].shape[0], 1) if graph.inputs and graph.inputs[0].shape else 1
    each = sum(abs(tensor.type.size) for tensor in tensors) * 4 // own
    size = max(1, min(LARGEST_BATCH, OBSERVED_BYTES // max(each, 1)))
    begun = False
    try:
        for values in samples(size):
            yield listed(infer(*values))
            begun = True
    except ModelError:
        if begun or size == own:
            raise
        for values in samples(own):
            yield listed(infer(*values))
