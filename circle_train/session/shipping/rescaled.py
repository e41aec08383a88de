"""A trained model of integers in new scales of its weights: the largest of each channel takes 127 steps again."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from circle_train import format
from circle_train.errors import ConfigError
from circle_train.format.metadata import hints
from circle_train.ir import Buffer, DType, Module, Node, Quantization, Tensor
from circle_train.ir.tensor_type import Array
from circle_train.ops.integers import InIntegers
from circle_train.ops.numeric.quantize import dequantize
from circle_train.quantize.scales import as_integers, for_bias, product, symmetric
from circle_train.runtime.module import is_changed, with_values
from circle_train.runtime.state import State


def rescaled(module: Module, state: State) -> Module:
    """What was trained, in the scales that fit it best; activations keep theirs, as many scales as there were remain."""
    made = format.read(format.write(with_values(module, state)))
    hints.restore(made)
    masters = {
        parameter.root.name: np.asarray(state.value(name), np.float32)
        for name, parameter in state.parameters.items()
        if is_changed(state, parameter)
    }
    graph = made.main
    count = 0
    for node in graph.nodes:
        facts: InIntegers | None = node.op.in_integers
        held = {node.op.input_name(i): t for i, t in enumerate(node.inputs) if t is not None}
        x, w, bias = held.get("x"), held.get("w"), held.get("b")
        if facts is None or x is None or w is None or w.name not in masters or not _is_symmetric(w):
            continue
        if x.quantization is None or any(t is not None and len(graph.readers(t)) > 1 for t in (w, bias)):
            continue
        _rescale(node, x.quantization, w, bias, masters)
        count += 1
    if not count:
        raise ConfigError(
            "rescale: no weights of integers were trained that are symmetric around 0 and have one reader; export "
            "without it"
        )
    carried = {key: made.carried[key] for key in made.carried if key not in ("source", "replaced", "apart")}
    buffers = dict.fromkeys(
        [*made.buffers[:1], *(t.buffer for g in made.graphs for t in g.all_tensors() if t.buffer)]
    )
    buffers |= dict.fromkeys(entry.buffer for entry in made.metadata)
    return hints.attach(replace(made, buffers=list(buffers), carried=carried))


def _is_symmetric(w: Tensor) -> bool:
    meaning = w.quantization
    return w.is_constant and w.dtype is DType.INT8 and meaning is not None and not any(meaning.zero_point)


def _rescale(node: Node, x: Quantization, w: Tensor, bias: Tensor | None, masters: dict[str, Array]) -> None:
    """Weights by their largest, unless the bias asks for more; what training cut off stays cut off."""
    old = w.quantization
    assert old is not None
    facts: InIntegers = node.op.in_integers
    real = _within(masters[w.name], old)
    shift = None
    if bias is not None:
        meaning = bias.quantization or product(x, old)
        shift = masters[bias.name] if bias.name in masters else dequantize(bias.data, meaning)
    new = symmetric(real, facts.weights["w"] if len(old.scale) > 1 else None, for_bias(shift, x))
    w.quantization, w.buffer = new, Buffer(as_integers(real, w.dtype, new))
    if bias is not None and shift is not None:
        bias.quantization = product(x, new)
        bias.buffer = Buffer(as_integers(shift, bias.dtype, bias.quantization))


def _within(values: Array, meaning: Quantization) -> Array:
    """Between the ends of the grid that it was trained on."""
    shape = [1] * values.ndim
    shape[meaning.axis if len(meaning.scale) > 1 else 0] = -1
    scale = np.array(meaning.scale, np.float32).reshape(shape)
    cut: Array = np.clip(values, -128 * scale, 127 * scale)
    return cut
