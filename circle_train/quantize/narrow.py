"""Constants in fewer bits while activations stay floats: dynamic range, and half precision."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from circle_train.ir import DType, Graph, Node, Tensor, TensorType
from circle_train.ir.graph import constant
from circle_train.ops.integers import InIntegers
from circle_train.ops.numeric.quantize import Dequantize
from circle_train.quantize.plan import is_real, weights_of
from circle_train.quantize.scales import constant_in, symmetric

FEWEST = 1024
"""Weights of an operator that are worth scales, as in TensorFlow's converter."""
LARGEST_HALF = 65504.0
Outcome = tuple[int, list[str]]
"""How many operators hold fewer bits, and what stays as it is."""


def to_integer_weights(graph: Graph) -> Outcome:
    """8 bits for weights whose operators quantize activations while they run."""
    made: dict[tuple[object, ...], Tensor] = {}
    count, floats = 0, []
    for node in graph.nodes:
        facts: InIntegers | None = node.op.in_integers
        large = [t for t in node.inputs if _is_weight(t) and t is not None and t.type.size >= FEWEST]
        if not large or not is_real(node.outputs[0]):
            continue
        if facts is None or not facts.dynamic:
            floats.append(f"{node}: LiteRT computes it with float constants alone")
            continue
        ((place, axis),) = weights_of(node).items()
        w = node.inputs[place]
        if w is None or w not in large:
            continue
        key = w.buffer, w.shape, axis
        if key not in made:
            made[key] = constant_in(w.data, w.name, DType.INT8, symmetric(w.data, axis))
        inputs = [made[key] if i == place else t for i, t in enumerate(node.inputs)]
        asymmetric = hasattr(node.op, "asymmetric_quantize_inputs")
        op = replace(node.op, asymmetric_quantize_inputs=True) if asymmetric else node.op
        carried = {key: value for key, value in node.carried.items() if key != "operator_code"}
        graph.replace([node], Node(op, inputs, node.outputs, node.index, carried=carried))
        count += 1
    return count, floats


def to_half_precision(graph: Graph) -> Outcome:
    """Half floats for all parameters that they can hold, widened where they are read."""
    made: dict[Tensor, Tensor] = {}
    floats: list[str] = []
    users: set[Node] = set()
    for node in graph.nodes:
        inputs = list(node.inputs)
        for i, tensor in enumerate(inputs):
            if tensor is None or not _is_weight(tensor) or node.op.input_name(i) not in node.op.parameters:
                continue
            if not np.abs(tensor.data).max(initial=0) <= LARGEST_HALF:
                floats.append(f"{node}: '{tensor.name}' holds numbers beyond {LARGEST_HALF:.0f}")
                continue
            if tensor not in made:
                made[tensor] = _halved(graph, tensor)
            inputs[i] = made[tensor]
            users.add(node)
        if inputs != node.inputs:
            graph.reconnect(node, inputs)
    return len(users), floats


def _halved(graph: Graph, tensor: Tensor) -> Tensor:
    """The tensor as a DEQUANTIZE at the graph's beginning makes it of half floats."""
    half = constant(tensor.data.astype(np.float16), f"{tensor.name}:float16")
    wide = Tensor(tensor.name, TensorType(DType.FLOAT32, tensor.shape))
    graph.insert(Node(Dequantize(), [half], [wide]))
    return wide


def _is_weight(tensor: Tensor | None) -> bool:
    return tensor is not None and tensor.is_constant and is_real(tensor) and tensor.type.rank > 0
