"""A loaded graph as it is quantized: constants decoded, normalisations in the weights, activations in the operators."""

from __future__ import annotations

from dataclasses import fields, replace

import numpy as np

from circle_train.ir import DType, Graph, Node
from circle_train.ir.graph import constant
from circle_train.ops.attributes import Activation
from circle_train.ops.integers import Scales
from circle_train.ops.numeric.arithmetic import Div, Mul
from circle_train.ops.numeric.fill import Shape
from circle_train.ops.numeric.unary import Square
from circle_train.passes.dead import drop_dead_nodes
from circle_train.passes.fold import fold_constants
from circle_train.passes.integers.affine import fold_into_products, is_number
from circle_train.passes.integers.masters import decode_weights, make_float_masters
from circle_train.passes.litert.suit import is_refused, suit
from circle_train.passes.order import sort_topologically


def make_ready(graph: Graph) -> None:
    """Rewrite; the numbers stay."""
    sort_topologically(graph)
    make_float_masters(graph)
    decode_weights(graph)
    if is_refused(graph):
        suit(graph)
    if not any(
        tensor.quantization for tensor in graph.all_tensors()
    ):  # else types are what scales make of them
        asked = _asks_for_sizes(graph)
        fold_constants(graph)
        if asked and not _asks_for_sizes(graph):
            fix_sizes(graph)
    fold_into_products(graph)
    multiply_instead(graph)
    fuse_activations(graph)
    drop_dead_nodes(graph)


def _asks_for_sizes(graph: Graph) -> bool:
    return any(isinstance(node.op, Shape) for node in graph.nodes)


def fix_sizes(graph: Graph) -> None:
    """Sizes that were computed while running are constants now: nothing is open any more, and says so."""
    for tensor in graph.all_tensors():
        tensor.shape_signature = None


def multiply_instead(graph: Graph) -> None:
    """Squares, and quotients of constants, of which LiteRT has no integers, as products."""
    for node in list(graph.nodes):
        x = node.inputs[0] if node.inputs else None
        if x is None or x.dtype is not DType.FLOAT32:
            continue
        if isinstance(node.op, Square):
            graph.replace([node], Node(Mul(), [x, x], node.outputs, node.index))
        elif (
            isinstance(node.op, Div)
            and (by := node.inputs[1]) is not None
            and is_number(by)
            and by.data.all()
        ):
            inverse = constant((1 / by.data.astype(np.float64)).astype(np.float32), f"1/{by.name}")
            op = Mul(fused_activation_function=node.op.activation)
            graph.replace([node], Node(op, [x, inverse], node.outputs, node.index))


def fuse_activations(graph: Graph) -> None:
    """Let operators that can clip do it themselves: the scale need not cover what is cut off."""
    for node in list(graph.nodes):
        maker = node.inputs[0].producer if node.inputs and node.inputs[0] is not None else None
        activation = Activation.__members__.get(node.op.name, Activation.NONE)
        if maker is None or activation.bounds[0] is None or not _may_clip(maker):
            continue
        if graph.only_reader(maker.outputs[0]) is node:
            op = replace(maker.op, fused_activation_function=activation)
            graph.replace([maker, node], Node(op, maker.inputs, node.outputs, maker.index))


def _may_clip(node: Node) -> bool:
    facts = node.op.in_integers
    known = any(field.name == "fused_activation_function" for field in fields(node.op))
    return known and facts is not None and facts.scales is Scales.OWN and not node.op.activation
