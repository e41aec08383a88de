"""From a module of floats to one of integers: make ready, observe, equalise, choose scales, write."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType

import numpy as np

from circle_train.errors import ConfigError, DataError, ModelError, refusing
from circle_train.format.metadata import hints
from circle_train.format.metadata.description import Description, described
from circle_train.ir import DType, Graph, Module, Quantization, Tensor
from circle_train.ir.tensor_type import Array
from circle_train.ir.verify import verify
from circle_train.passes.integers.as_shipped import Rounding
from circle_train.passes.integers.quantized import LARGEST_SCALE
from circle_train.quantize.calibrate import Observed, observe, range_of
from circle_train.quantize.equalise import equalise
from circle_train.quantize.floors import floors, weighed_rows
from circle_train.quantize.narrow import to_half_precision, to_integer_weights
from circle_train.quantize.plan import Plan
from circle_train.quantize.ready import make_ready
from circle_train.quantize.scales import of_pixels
from circle_train.quantize.write import Writer, as_unsigned
from circle_train.record import record
from circle_train.settings.quantization import Int8

NARROW = {"dynamic": to_integer_weights, "float16": to_half_precision}
ACTIVATIONS = {"int8": DType.INT8, "int16x8": DType.INT16}
Samples = Callable[[int], Iterable[Sequence[Array]]]
"""The calibration's inputs in batches of so many; begins anew when called."""
Observe = Callable[[Module, Samples, Sequence[Tensor]], Callable[[], Iterable[Sequence[Array]]]]
"""What these tensors of the module's main graph hold, batch by batch."""


@record
class Quantized:
    """A module in integers, and what was left in floats."""

    module: Module
    floats: tuple[str, ...] = ()
    """Operators that compute in floats, each with the reason."""
    count: int = 0
    """Operators in integers."""


def quantize(
    module: Module,
    settings: Int8,
    samples: Samples | None,
    run: Observe,
    known: Mapping[str, Quantization] = MappingProxyType({}),
) -> Quantized:
    """The module as the settings say, in scales that are known by name as far as they are; itself it is not changed."""
    graph = ready(module)
    if settings.equalize and not known:
        equalise(graph)
    if settings.scheme in NARROW:
        count, floats = NARROW[settings.scheme](graph)
        if not count:
            raise ConfigError(
                f"quantize: the model holds no weights that the scheme {settings.scheme} makes smaller"
                f"{_some(floats)}; it is shipped as it is, without quantize"
            )
        verify(graph)
        return Quantized(assembled(module, graph, {}), tuple(floats), count)
    plan = planned(graph, settings, described(module))
    plan.know(known)
    means: dict[Tensor, Array] = {}
    if plan.observed:
        means = calibrate(module, plan, settings, samples, run)
    moved = Writer(plan, {} if known else means).write()
    if settings.io == "uint8":
        moved = as_unsigned(graph, moved)
    verify(graph)
    refuse_vast(graph)
    return Quantized(assembled(module, graph, moved), reasons(plan), len(plan.nodes))


def scales_of(module: Module, settings: Int8, samples: Samples | None, run: Observe) -> Rounding:
    """The scales of activations that the module would ship in, by name: what training is to round to."""
    plan = planned(ready(module), settings, described(module))
    calibrate(module, plan, settings, samples, run)
    limits = np.iinfo(plan.dtype.numpy)
    found = {tensor.name: plan.scale_of(tensor) for tensor in plan.activations}
    return Rounding(found, int(limits.min), int(limits.max))


def ready(module: Module) -> Graph:
    """A copy of the main graph, as it is quantized."""
    graph = module.main.copy()
    graph.carried = dict(module.main.carried)
    with refusing(ModelError, "the model", "what its file says of shapes is wrong, load another copy"):
        make_ready(graph)
    return graph


def refuse_vast(graph: Graph) -> None:
    """Scales that no runtime takes, ours included."""
    for tensor in graph.all_tensors():
        if tensor.quantization is not None and max(tensor.quantization.scale) > LARGEST_SCALE:
            raise ConfigError(
                f"quantize: '{tensor.name}' would have steps of {max(tensor.quantization.scale):g}, expected at most "
                f"{LARGEST_SCALE:g}; its numbers are too large for integers, ship the model in floats"
            )


def planned(graph: Graph, settings: Int8, known: Description | None) -> Plan:
    """Refused where nothing would be an integer."""
    ends = [] if settings.io == "float32" else [*graph.inputs, *graph.outputs]
    plan = Plan(graph, ACTIVATIONS[settings.scheme], ends)
    if not plan.nodes:
        raise ConfigError(
            "quantize: the model holds no operator that computes floats and that LiteRT has in integers"
            f"{_some(reasons(plan))}; it is shipped as it is, without quantize"
        )
    pixels = None if known is None or plan.dtype is not DType.INT8 else _pixels(known)
    if pixels is not None and len(graph.inputs) == 1:
        plan.fix(graph.inputs[0], pixels)
    return plan


def _pixels(known: Description) -> Quantization | None:
    """The scale in which an input's integers are the pixels themselves, where all channels are treated alike."""
    if known.kind != "image" or not known.mean or not known.std:
        return None
    return of_pixels(known.mean[0], known.std[0]) if len({*known.mean}) == len({*known.std}) == 1 else None


def reasons(plan: Plan) -> tuple[str, ...]:
    """What stays float, and why."""
    return tuple(f"{node}: {why}" for node, why in plan.floats.items())


def calibrate(
    module: Module, plan: Plan, settings: Int8, samples: Samples | None, run: Observe
) -> dict[Tensor, Array]:
    """Tell the plan the ranges of its activations; the means of those that meet weights."""
    if samples is None:
        raise DataError(
            f"quantize: the scheme {settings.scheme} needs calibration samples, a hundred or so; give Int8(calibration=x)"
        )
    module = replace(module, graphs=[plan.graph, *module.graphs[1:]])
    averaged = plan.weighed if settings.correct_bias else []
    rows = weighed_rows(plan)
    observed = list(dict.fromkeys([*plan.observed, *averaged, *rows]))

    def narrow(found: Mapping[Tensor, Observed]) -> None:
        highs = {tensor: one.high for tensor, one in found.items()}
        tops = {tensor: found[tensor].top for tensor in rows if np.isfinite(found[tensor].top)}
        plan.floors = floors(plan, tops, highs)
        for tensor, one in found.items():
            one.low = max(one.low, plan.floors.get(tensor, one.low))

    batches = run(module, samples, observed)
    found = observe(observed, set(averaged), batches, settings.ranges != "minmax", set(rows), narrow)
    plan.take(
        {t: range_of(one, settings.ranges, settings.percentile, plan.dtype) for t, one in found.items()}
    )
    means = {tensor: found[tensor].mean for tensor in averaged}
    return {tensor: mean for tensor, mean in means.items() if mean is not None}


def _some(floats: Sequence[str]) -> str:
    """The first few of what stays."""
    return f" ({'; '.join(floats[:3])}{'; …' if len(floats) > 3 else ''})" if floats else ""


def assembled(module: Module, graph: Graph, moved: dict[Tensor, Tensor]) -> Module:
    """The module with this main graph: no buffer that nobody reads, signatures of the tensors that there are now."""
    twins = {t.origin: t for t in moved} | {t.origin: t for t in graph.all_tensors() if t.origin}
    for index, node in enumerate(graph.nodes):
        node.index = index
    graph.carried.pop("file_order", None)
    carried = {
        key: value
        for key, value in module.carried.items()
        if key not in ("source", "replaced", "apart", "operator_codes")
    }

    def there(entries: list[tuple[str, Tensor]]) -> list[tuple[str, Tensor]]:
        return [(name, moved.get(twins[t], twins[t]) if t in twins else t) for name, t in entries]

    carried["signatures"] = [
        replace(one, graph=graph, inputs=there(one.inputs), outputs=there(one.outputs))
        if one.graph is module.main
        else one
        for one in module.carried.get("signatures", ())
    ]
    graphs = [graph, *module.graphs[1:]]
    used = dict.fromkeys(t.buffer for one in graphs for t in one.all_tensors() if t.buffer is not None)
    used |= dict.fromkeys(entry.buffer for entry in module.metadata)
    buffers = [buffer for i, buffer in enumerate(module.buffers) if not i or buffer in used]
    buffers += [buffer for buffer in used if buffer not in set(buffers)]
    return hints.attach(replace(module, graphs=graphs, buffers=buffers, carried=carried))
