"""Last touches on the graph: biases and activations into operators, idle reshapes out, ties restored."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from circle_train.convert.building.builder import Builder
from circle_train.convert.building.provenance import Lineage, Reshaped, Scaled, Transposed
from circle_train.ir import DType, Graph, Node, Tensor
from circle_train.ir.node import made_by
from circle_train.ir.tensor_type import Array
from circle_train.ops.attributes import Activation
from circle_train.ops.internal.norms.batch_norm import BatchNorm
from circle_train.passes.dead import drop_dead_nodes

CARRIERS = frozenset(
    {"CONV_2D", "DEPTHWISE_CONV_2D", "FULLY_CONNECTED", "ADD", "SUB", "MUL", "DIV", "BATCH_NORM"}
)
ACTIVATIONS = {"RELU": Activation.RELU, "RELU6": Activation.RELU6, "RELU_N1_TO_1": Activation.RELU_N1_TO_1}
BIASED = {"FULLY_CONNECTED": 0, "CONV_2D": 0, "DEPTHWISE_CONV_2D": 3}
"""Operators with an optional bias, and the axis of their weights that counts outputs."""


def tidy(builder: Builder, fold_batchnorm: bool) -> None:
    """In place; what is left is what goes into the file."""
    graph = builder.graph
    if fold_batchnorm:
        fold_normalisations(builder)
    merge_reshapes(builder)
    drop_dead_nodes(graph)
    take_biases(builder)
    take_channel_shuffles(builder)
    take_activations(graph)
    drop_dead_nodes(graph)
    tie(builder)


def merge_reshapes(builder: Builder) -> None:
    """RESHAPE of RESHAPE reads the first one's input; one that changes nothing is left out."""
    graph = builder.graph
    for node in graph.nodes:
        if node.op.name != "RESHAPE" or node.inputs[0] is None:
            continue
        source = made_by(node.inputs[0], "RESHAPE")
        if source is not None:
            graph.reconnect(node, [source.inputs[0], *node.inputs[1:]])
        given, made = node.inputs[0], node.outputs[0]
        assert given is not None
        static = given.type.is_static and made.type.is_static
        idle = static and builder.shape(given) == builder.shape(made) and not given.is_constant
        if idle and made not in graph.outputs:
            graph.redirect(made, given)


def take_biases(builder: Builder) -> None:
    """ADD of one constant per output channel becomes the operator's bias."""
    graph = builder.graph
    for node in graph.nodes:
        axis = BIASED.get(node.op.name)
        if axis is None or node.op.activation or (len(node.inputs) > 2 and node.inputs[2] is not None):
            continue
        reader, weights = graph.only_reader(node.outputs[0]), node.inputs[1]
        if reader is None or reader.op.name != "ADD" or reader.op.activation or weights is None:
            continue
        bias = _other(reader, node.outputs[0])
        outputs = weights.shape[axis]
        if bias is None or not bias.is_constant or bias.type.size != outputs or bias.shape[-1:] != (outputs,):
            continue
        if reader.outputs[0].shape != node.outputs[0].shape:
            continue
        inputs = [*node.inputs[:2], builder.reshape(bias, (outputs,))]
        graph.take_over([node, reader], replace(node, inputs=inputs, outputs=reader.outputs))


def _other(node: Node, operand: Tensor) -> Tensor | None:
    """What a node reads besides."""
    return next((tensor for tensor in node.inputs if tensor is not None and tensor is not operand), None)


def take_channel_shuffles(builder: Builder) -> None:
    """RESHAPE, TRANSPOSE, RESHAPE that shuffle a convolution's channels: shuffle its weights instead."""
    graph = builder.graph
    for node in graph.nodes:
        if node.op.name != "CONV_2D":
            continue
        chain, tensor = [], node.outputs[0]
        for name in ("RESHAPE", "TRANSPOSE", "RESHAPE"):
            reader = graph.only_reader(tensor)
            if reader is None or reader.op.name != name:
                break
            chain.append(reader)
            tensor = reader.outputs[0]
        if len(chain) == 3 and (groups := _shuffle_of(node, chain)) is not None:
            weights = [None if t is None else _shuffled(builder, t, groups) for t in node.inputs[1:3]]
            made = replace(node, inputs=[node.inputs[0], *weights], outputs=chain[2].outputs)
            graph.take_over([node, *chain], made)


def _shuffle_of(node: Node, chain: list[Node]) -> tuple[int, int] | None:
    """(a, b) where channels a × b become b × a and nothing else moves."""
    order, split, end = chain[1].inputs[1], chain[0].outputs[0].shape, chain[2].outputs[0].shape
    constant = all(tensor is None or tensor.is_constant for tensor in node.inputs[1:3])
    if not constant or order is None or list(order.data) != [0, 1, 2, 4, 3]:
        return None
    made = node.outputs[0].shape
    return (split[3], split[4]) if end == made and split[:3] == made[:3] else None


def _shuffled(builder: Builder, tensor: Tensor, groups: tuple[int, int]) -> Tensor:
    """Weights or bias with their first axis, a × b outputs, put into the order b × a."""
    rest = tensor.shape[1:]
    wide = builder.reshape(tensor, (*groups, *rest))
    wide = builder.transpose(wide, (1, 0, *range(2, 2 + len(rest))))
    return builder.reshape(wide, tensor.shape)


def take_activations(graph: Graph) -> None:
    """RELU and its kin into the operator that makes their input, also through a RESHAPE."""
    for node in graph.nodes:
        if node.op.name not in CARRIERS or node.op.activation or node.outputs[0].dtype is not DType.FLOAT32:
            continue
        reader = graph.only_reader(node.outputs[0])
        shaped = reader if reader is not None and reader.op.name == "RESHAPE" else None
        if shaped is not None:
            reader = graph.only_reader(shaped.outputs[0])
        if reader is None or reader.op.name not in ACTIVATIONS:
            continue
        op = replace(node.op, fused_activation_function=ACTIVATIONS[reader.op.name])
        if shaped is None:
            graph.take_over([node, reader], replace(node, op=op, outputs=reader.outputs))
        else:
            node.op = op
            graph.take_over([shaped, reader], replace(shaped, outputs=reader.outputs))


def fold_normalisations(builder: Builder) -> None:
    """BatchNormalization after a convolution goes into its weights and bias, which then are trained."""
    graph = builder.graph
    for node in graph.nodes:
        if node.op.name not in ("CONV_2D", "DEPTHWISE_CONV_2D") or node.op.activation:
            continue
        behind, factor, offset = _scaling(graph, node.outputs[0])
        inputs = _folded(builder, node, factor, offset)
        if inputs is not None:
            op = replace(node.op, fused_activation_function=behind[-1].op.activation)
            made = replace(node, op=op, inputs=inputs, outputs=behind[-1].outputs)
            graph.take_over([node, *behind], made)


def _scaling(graph: Graph, tensor: Tensor) -> tuple[list[Node], Array | None, Array | None]:
    """The nodes that alone read a tensor, times a factor, plus an offset."""
    first = graph.only_reader(tensor)
    if first is not None and isinstance(first.op, BatchNorm):
        values = [evaluated(operand) for operand in first.inputs[1:]]
        given = [value for value in values if value is not None]
        factor, offset = first.op.scale_and_shift(*given) if len(given) == len(values) else (None, None)
        return [first], factor, offset
    second = graph.only_reader(first.outputs[0]) if first is not None and first.op.name == "MUL" else None
    if first is None or second is None or second.op.name != "ADD":
        return [], None, None
    return [first, second], evaluated(_other(first, tensor)), evaluated(_other(second, first.outputs[0]))


def _folded(b: Builder, node: Node, factor: Array | None, offset: Array | None) -> list[Tensor | None] | None:
    """The convolution's operands times the factor and plus the offset; None where these are not one per channel."""
    x, weights, bias = (*node.inputs, None)[:3]
    if weights is None or not weights.is_constant or factor is None or offset is None:
        return None
    outputs = weights.shape[BIASED[node.op.name]]
    if factor.size != outputs or offset.size != outputs or not factor.all():
        return None
    factor, offset = factor.reshape(-1), offset.reshape(-1)
    along = (outputs, 1, 1, 1) if node.op.name == "CONV_2D" else (1, 1, 1, outputs)
    scaled = _scaled(b, weights, factor.reshape(along), np.zeros(1, factor.dtype))
    return [x, scaled, _folded_bias(b, bias, factor, offset)]


def evaluated(tensor: Tensor | None) -> Array | None:
    """The value of what is computed from constants alone."""
    if tensor is not None and tensor.is_constant:
        return tensor.data
    if tensor is None or tensor.producer is None:
        return None
    inputs = [None if t is None else evaluated(t) for t in tensor.producer.inputs]
    if any(value is None and t is not None for value, t in zip(inputs, tensor.producer.inputs, strict=True)):
        return None
    return np.asarray(tensor.producer.op.compute(inputs)[tensor.producer.outputs.index(tensor)])


def _scaled(b: Builder, tensor: Tensor, factor: Array, offset: Array) -> Tensor:
    """The constant times factor plus offset, still the initializer it was."""
    step = Scaled(factor, offset)
    value = step.forward(tensor.data)
    lineage = b.lineage.get(tensor)
    return b.constant(value) if lineage is None else b.parameter(value, lineage.then(step))


def _folded_bias(b: Builder, bias: Tensor | None, factor: Array, offset: Array) -> Tensor:
    if bias is None:
        return b.constant(offset)
    return _scaled(b, bias, factor, offset)


def tie(builder: Builder) -> None:
    """An initializer used in several forms stays one constant; the other forms are computed from it."""
    graph = builder.graph
    forms: dict[str, dict[Tensor, None]] = {}
    for node in graph.nodes:
        for tensor in node.inputs:
            if tensor is not None and (lineage := builder.lineage.get(tensor)) is not None:
                forms.setdefault(lineage.name, {})[tensor] = None
    for tensors in forms.values():
        first, *others = tensors
        for other in others:
            _derive(builder, graph, first, other)


def _derive(builder: Builder, graph: Graph, first: Tensor, other: Tensor) -> None:
    """Nodes at the graph's start that make one form of an initializer out of another."""
    one, two = builder.lineage[first], builder.lineage[other]
    if any(isinstance(step, Scaled) for step in (*one.steps, *two.steps)):
        return
    made, graph.cursor = first, graph.nodes[0]
    before = builder.lineage.pop(first)
    for name, operand in _simplified(_way(one, two), first.shape):
        made = builder.emit_unfolded(name, made, builder.integers(operand))
    builder.lineage[first] = before
    graph.cursor = None
    graph.redirect(other, made)


def _way(one: Lineage, two: Lineage) -> list[tuple[str, tuple[int, ...]]]:
    """Transpositions and shapes that lead from one form to the other."""
    way = []
    for step in reversed(one.steps):
        if isinstance(step, Transposed):
            way.append(("TRANSPOSE", tuple(int(axis) for axis in np.argsort(step.permutation))))
        elif isinstance(step, Reshaped):
            way.append(("RESHAPE", step.before))
    for step in two.steps:
        if isinstance(step, Transposed):
            way.append(("TRANSPOSE", step.permutation))
        elif isinstance(step, Reshaped):
            way.append(("RESHAPE", step.after))
    return way


def _simplified(
    way: list[tuple[str, tuple[int, ...]]], shape: tuple[int, ...]
) -> list[tuple[str, tuple[int, ...]]]:
    """Neighbouring steps of a kind as one; steps that change nothing left out."""
    result: list[tuple[str, tuple[int, ...]]] = []
    for name, given in way:
        operand = given
        if result and result[-1][0] == name:
            before = result.pop()[1]
            operand = tuple(before[axis] for axis in given) if name == "TRANSPOSE" else given
        if name == "RESHAPE" or operand != tuple(range(len(operand))):
            result.append((name, operand))
    return [] if result == [("RESHAPE", shape)] else result
