"""Weights in integers between floats (dynamic range), multiplied as integers where a model only runs."""

from __future__ import annotations

from circle_train.ir import DType, Graph, Node, Tensor, TensorType
from circle_train.ops.attributes import Activation
from circle_train.ops.internal.integers.hybrid import Hybrid, RoundSamples
from circle_train.ops.layers.conv import Conv2D, DepthwiseConv2D
from circle_train.ops.layers.linear import FullyConnected
from circle_train.passes.integers.quantized import require_sound


def multiply_in_bytes(graph: Graph) -> None:
    """Let operators of floats round what comes in as LiteRT does, if their weights are int8.

    XNNPACK multiplies for FULLY_CONNECTED and CONV_2D; LiteRT's own kernel, which rounds otherwise, for DEPTHWISE_CONV_2D.
    """
    for node in list(graph.nodes):
        if isinstance(node.op, (Conv2D, DepthwiseConv2D, FullyConnected)) and _fits(node):
            x, w, b = node.op.pad(node.inputs)
            assert x is not None and w is not None and w.quantization is not None
            require_sound(node, w, w.quantization)
            if isinstance(node.op, DepthwiseConv2D):
                graph.reconnect(node, [_rounded(graph, node, x), w, b])
            else:
                node.op = Hybrid(node.op, w.quantization)


def _rounded(graph: Graph, node: Node, x: Tensor) -> Tensor:
    made = Tensor(f"{x.name}:rounded", TensorType(x.dtype, x.shape))
    graph.insert(Node(RoundSamples(), [x], [made]), before=node)
    return made


def _fits(node: Node) -> bool:
    """Symmetric weights, with one scale or one for each output, and nothing else that is not float32."""
    x, w, b = node.op.pad(node.inputs)
    if w is None or not w.is_constant or w.dtype is not DType.INT8 or w.quantization is None:
        return False
    others = [t for t in (x, b, *node.outputs) if t is not None]
    meant = w.quantization
    along = 3 if isinstance(node.op, DepthwiseConv2D) else 0
    counts = meant.is_along(along) and len(meant.scale) == w.shape[along]
    counts = counts or (len(meant.scale) == 1 and along == 0)
    is_grouped = isinstance(node.op, Conv2D) and x.shape[-1:] != w.shape[-1:]
    is_known = node.op.activation not in (Activation.TANH, Activation.SIGN_BIT)
    is_float = all(t.dtype is DType.FLOAT32 for t in others) and (b is None or b.is_constant)
    return is_float and counts and not any(meant.zero_point) and is_known and not is_grouped
