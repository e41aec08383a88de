"""Weights in integers between floats (dynamic range), multiplied as integers where a model only runs."""

from __future__ import annotations

from circle_train.ir import DType, Graph, Node
from circle_train.ops.attributes import Activation
from circle_train.ops.internal.integers.hybrid import Hybrid
from circle_train.ops.layers.conv import Conv2D
from circle_train.ops.layers.linear import FullyConnected
from circle_train.passes.integers.quantized import require_sound


def multiply_in_bytes(graph: Graph) -> None:
    """Let FULLY_CONNECTED and CONV_2D of floats round what comes in as LiteRT does, if their weights are int8."""
    for node in graph.nodes:
        if isinstance(node.op, (Conv2D, FullyConnected)) and _fits(node):
            w = node.inputs[1]
            assert w is not None and w.quantization is not None
            require_sound(node, w, w.quantization)
            node.op = Hybrid(node.op, w.quantization)


def _fits(node: Node) -> bool:
    """Symmetric weights, with one scale or one for each output, and nothing else that is not float32."""
    x, w, b = node.op.pad(node.inputs)
    if w is None or not w.is_constant or w.dtype is not DType.INT8 or w.quantization is None:
        return False
    others = [t for t in (x, b, *node.outputs) if t is not None]
    meant = w.quantization
    counts = len(meant.scale) == 1 or (meant.is_along(0) and len(meant.scale) == w.shape[0])
    is_grouped = isinstance(node.op, Conv2D) and x.shape[-1:] != w.shape[-1:]
    is_known = node.op.activation not in (Activation.TANH, Activation.SIGN_BIT)
    is_float = all(t.dtype is DType.FLOAT32 for t in others) and (b is None or b.is_constant)
    return is_float and counts and not any(meant.zero_point) and is_known and not is_grouped
