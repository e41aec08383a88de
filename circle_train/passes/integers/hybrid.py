"""Weights in integers between floats (dynamic range), multiplied as integers where a model only runs."""

from __future__ import annotations

from circle_train.ir import DType, Graph, Node, Tensor
from circle_train.ops.attributes import Activation
from circle_train.ops.internal.integers.hybrid import Hybrid, Rounding, RoundSamples
from circle_train.ops.layers.conv import Conv2D, DepthwiseConv2D
from circle_train.ops.layers.linear import FullyConnected
from circle_train.passes.integers.quantized import require_sound


def multiply_in_bytes(graph: Graph) -> None:
    """Let FULLY_CONNECTED and convolutions of floats round what comes in as LiteRT does, if their weights are int8 or int4."""
    for node in graph.nodes:
        if not isinstance(node.op, (Conv2D, DepthwiseConv2D, FullyConnected)) or not _fits(node):
            continue
        w = node.inputs[1]
        assert w is not None and w.quantization is not None
        require_sound(node, w, w.quantization)
        if isinstance(node.op, DepthwiseConv2D):
            _round_samples(graph, node)
        else:
            node.op = Hybrid(node.op, w.quantization, *_rounding(node, w))


def _fits(node: Node) -> bool:
    """Symmetric weights, with one scale or one for each output, and nothing else that is not float32."""
    x, w, b = node.op.pad(node.inputs)
    if w is None or not w.is_constant or w.dtype is not DType.INT8 or w.quantization is None:
        return False
    others = [t for t in (x, b, *node.outputs) if t is not None]
    meant = w.quantization
    if isinstance(node.op, DepthwiseConv2D):  # LiteRT runs no others
        counts = meant.is_along(3) and len(meant.scale) == w.shape[3] and not _has_four_bits(w)
    else:
        counts = len(meant.scale) == 1 or (meant.is_along(0) and len(meant.scale) == w.shape[0])
    is_grouped = isinstance(node.op, Conv2D) and x.shape[-1:] != w.shape[-1:]
    is_known = node.op.activation not in (Activation.TANH, Activation.SIGN_BIT)
    is_float = all(t.dtype is DType.FLOAT32 for t in others) and (b is None or b.is_constant)
    return is_float and counts and not any(meant.zero_point) and is_known and not is_grouped


def _rounding(node: Node, w: Tensor) -> tuple[Rounding, bool]:
    """To whose bytes, and whether sample by sample whatever the window.

    XNNPACK leaves some weights to LiteRT's own kernels: bytes that the file calls unsigned, and of int4 those of products
    with an odd number of inputs, which are rounded as the file asks, and all of convolutions.
    """
    assert w.quantization is not None
    is_left = "called_unsigned" in w.root().carried
    if isinstance(node.op, FullyConnected):
        if not (is_left or (_has_four_bits(w) and w.shape[-1] % 2)):
            return Rounding.XNNPACK, False
        return Rounding.OWN if node.op.asymmetric_quantize_inputs else Rounding.SYMMETRIC, False
    if not (is_left or _has_four_bits(w)):
        return Rounding.XNNPACK, False
    return Rounding.SYMMETRIC if len(set(w.quantization.scale)) == 1 else Rounding.OWN, True


def _has_four_bits(tensor: Tensor) -> bool:
    return tensor.origin is not None and tensor.origin.dtype is DType.INT4


def _round_samples(graph: Graph, node: Node) -> None:
    """What comes in, on grids of its own; the weights are decoded like others."""
    x = node.inputs[0]
    assert x is not None
    made = Tensor(f"{x.name}:rounded", x.type)
    made.shape_signature = x.shape_signature
    graph.insert(Node(RoundSamples(), [x], [made], node.index), before=node)
    graph.reconnect(node, [made, *node.inputs[1:]])
