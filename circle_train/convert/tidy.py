"""Last touches on the graph: biases and activations into operators, idle reshapes out, ties restored."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from circle_train.convert.builder import Builder
from circle_train.convert.fuse import drop_dead
from circle_train.convert.provenance import Lineage, Reshaped, Scaled, Transposed
from circle_train.ir import DType, Graph, Node, Tensor
from circle_train.ir.tensor_type import Array
from circle_train.ops.attributes import Activation

CARRIERS = frozenset({"CONV_2D", "DEPTHWISE_CONV_2D", "FULLY_CONNECTED", "ADD", "SUB", "MUL", "DIV"})
ACTIVATIONS = {"RELU": Activation.RELU, "RELU6": Activation.RELU6, "RELU_N1_TO_1": Activation.RELU_N1_TO_1}
BIASED = {"FULLY_CONNECTED": 0, "CONV_2D": 0, "DEPTHWISE_CONV_2D": 3}
"""Operators with an optional bias, and the axis of their weights that counts outputs."""


def tidy(builder: Builder, fold_batchnorm: bool) -> None:
    """In place; what is left is what goes into the file."""
    graph = builder.graph
    if fold_batchnorm:
        fold_normalisations(builder)
    merge_reshapes(graph)
    drop_dead(graph)
    take_biases(builder)
    take_channel_shuffles(builder)
    take_activations(graph)
    drop_dead(graph)
    tie(builder)


def users(graph: Graph) -> dict[int, list[Node]]:
    """The nodes that read each tensor; a graph output counts as read once more, by itself."""
    found: dict[int, list[Node]] = {}
    for node in graph.nodes:
        for tensor in node.inputs:
            if tensor is not None:
                found.setdefault(id(tensor), []).append(node)
    return found


def is_output(graph: Graph, tensor: Tensor) -> bool:
    return any(tensor is out for out in graph.outputs)


def only_reader(graph: Graph, readers: dict[int, list[Node]], tensor: Tensor) -> Node | None:
    """The one node that reads a tensor which nothing else needs."""
    found = readers.get(id(tensor), [])
    return found[0] if len(found) == 1 and not is_output(graph, tensor) else None


def merge_reshapes(graph: Graph) -> None:
    """RESHAPE of RESHAPE reads the first one's input; one that changes nothing is left out."""
    same: dict[int, Tensor] = {}
    for node in graph.nodes:
        node.inputs = [tensor if tensor is None else same.get(id(tensor), tensor) for tensor in node.inputs]
        if node.op.name != "RESHAPE" or node.inputs[0] is None or "dropout" in node.carried:
            continue
        source = node.inputs[0].producer
        if source is not None and source.op.name == "RESHAPE" and "dropout" not in source.carried:
            node.inputs[0] = source.inputs[0]
        given = node.inputs[0]
        assert given is not None
        idle = given.type.is_static and given.shape == node.outputs[0].shape and not given.is_constant
        if idle and not is_output(graph, node.outputs[0]):
            same[id(node.outputs[0])] = given


def take_biases(builder: Builder) -> None:
    """ADD of one constant per output channel becomes the operator's bias."""
    graph = builder.graph
    readers = users(graph)
    for node in graph.nodes:
        axis = BIASED.get(node.op.name) if node.outputs else None
        if axis is None or (len(node.inputs) > 2 and node.inputs[2] is not None):
            continue
        reader = only_reader(graph, readers, node.outputs[0])
        weights = node.inputs[1]
        if (
            reader is None
            or reader.op.name != "ADD"
            or weights is None
            or reader.op.activation
            or node.op.activation
        ):
            continue
        bias = next((t for t in reader.inputs if t is not None and t is not node.outputs[0]), None)
        outputs = weights.shape[axis]
        if bias is None or not bias.is_constant or bias.type.size != outputs or bias.shape[-1:] != (outputs,):
            continue
        if reader.outputs[0].shape != node.outputs[0].shape:
            continue
        node.inputs = [*node.inputs[:2], builder.reshape(bias, (outputs,))]
        _replace_output(node, reader)
    graph.nodes = [node for node in graph.nodes if node.outputs]


def take_channel_shuffles(builder: Builder) -> None:
    """RESHAPE, TRANSPOSE, RESHAPE that shuffle a convolution's channels: shuffle its weights instead."""
    graph = builder.graph
    readers = users(graph)
    for node in graph.nodes:
        if node.op.name != "CONV_2D":
            continue
        chain, tensor = [], node.outputs[0]
        for name in ("RESHAPE", "TRANSPOSE", "RESHAPE"):
            reader = only_reader(graph, readers, tensor)
            if reader is None or reader.op.name != name:
                break
            chain.append(reader)
            tensor = reader.outputs[0]
        if len(chain) == 3 and (groups := _shuffle_of(node, chain)) is not None:
            weights = [None if t is None else _shuffled(builder, t, groups) for t in node.inputs[1:3]]
            node.inputs = [node.inputs[0], *weights]
            _replace_output(node, chain[2])
            for passed in chain[:2]:
                passed.outputs = []
    graph.nodes = [node for node in graph.nodes if node.outputs]


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
    readers = users(graph)
    for node in graph.nodes:
        if not node.outputs:
            continue
        if node.op.name not in CARRIERS or node.op.activation or node.outputs[0].dtype is not DType.FLOAT32:
            continue
        reader = only_reader(graph, readers, node.outputs[0])
        shaped = reader if reader is not None and reader.op.name == "RESHAPE" else None
        if shaped is not None:
            reader = only_reader(graph, readers, shaped.outputs[0])
        if reader is None or reader.op.name not in ACTIVATIONS:
            continue
        node.op = replace(node.op, fused_activation_function=ACTIVATIONS[reader.op.name])
        _replace_output(shaped or node, reader)
    graph.nodes = [node for node in graph.nodes if node.outputs]


def _replace_output(node: Node, reader: Node) -> None:
    """The node makes what its reader made; the reader is left without outputs."""
    node.outputs = reader.outputs
    for tensor in node.outputs:
        tensor.producer = node
    reader.outputs = []


def fold_normalisations(builder: Builder) -> None:
    """BatchNormalization after a convolution goes into its weights and bias, which then are trained."""
    graph, b = builder.graph, builder
    readers = users(graph)
    for node in graph.nodes:
        if node.op.name not in ("CONV_2D", "DEPTHWISE_CONV_2D") or node.op.activation or not node.outputs:
            continue
        multiply = only_reader(graph, readers, node.outputs[0])
        add = (
            only_reader(graph, readers, multiply.outputs[0])
            if multiply is not None and multiply.op.name == "MUL"
            else None
        )
        weights, bias = node.inputs[1], node.inputs[2] if len(node.inputs) > 2 else None
        if (
            multiply is None
            or add is None
            or add.op.name != "ADD"
            or weights is None
            or not weights.is_constant
        ):
            continue
        factor = evaluated(next(t for t in multiply.inputs if t is not None and t is not node.outputs[0]))
        offset = evaluated(next(t for t in add.inputs if t is not None and t is not multiply.outputs[0]))
        outputs = weights.shape[BIASED[node.op.name]]
        if (
            factor is None
            or offset is None
            or factor.size != outputs
            or offset.size != outputs
            or not factor.all()
        ):
            continue
        factor, offset = factor.reshape(-1), offset.reshape(-1)
        along = (outputs, 1, 1, 1) if node.op.name == "CONV_2D" else (1, 1, 1, outputs)
        node.inputs = [node.inputs[0], _scaled(b, weights, factor.reshape(along), np.zeros(1, factor.dtype)),
                       _folded_bias(b, bias, factor, offset)]  # fmt: skip
        _replace_output(node, add)
        multiply.outputs = []
    graph.nodes = [node for node in graph.nodes if node.outputs]


def evaluated(tensor: Tensor) -> Array | None:
    """The value of what is computed from constants alone."""
    if tensor.is_constant:
        return tensor.data
    if tensor.producer is None:
        return None
    inputs = [None if t is None else evaluated(t) for t in tensor.producer.inputs]
    if any(value is None and t is not None for value, t in zip(inputs, tensor.producer.inputs, strict=True)):
        return None
    return np.asarray(tensor.producer.op.compute(inputs)[tensor.producer.outputs.index(tensor)])


def _scaled(b: Builder, tensor: Tensor, factor: Array, offset: Array) -> Tensor:
    """The constant times factor plus offset, still the initializer it was."""
    step = Scaled(factor, offset)
    value = step.forward(tensor.data)
    lineage = b.lineage.get(id(tensor))
    return b.constant(value) if lineage is None else b.parameter(value, lineage.then(step))


def _folded_bias(b: Builder, bias: Tensor | None, factor: Array, offset: Array) -> Tensor:
    if bias is None:
        return b.constant(offset)
    return _scaled(b, bias, factor, offset)


def tie(builder: Builder) -> None:
    """An initializer used in several forms stays one constant; the other forms are computed from it."""
    graph = builder.graph
    forms: dict[str, dict[int, Tensor]] = {}
    for node in graph.nodes:
        for tensor in node.inputs:
            if tensor is not None and (lineage := builder.lineage.get(id(tensor))) is not None:
                forms.setdefault(lineage.name, {})[id(tensor)] = tensor
    for tensors in forms.values():
        first, *others = tensors.values()
        for other in others:
            _derive(builder, graph, first, other)


def _derive(builder: Builder, graph: Graph, first: Tensor, other: Tensor) -> None:
    """Nodes at the graph's start that make one form of an initializer out of another."""
    one, two = builder.lineage[id(first)], builder.lineage[id(other)]
    if any(isinstance(step, Scaled) for step in (*one.steps, *two.steps)):
        return
    rest, graph.nodes = graph.nodes, []
    made = first
    before = builder.lineage.pop(id(first))
    for name, operand in _simplified(_way(one, two), first.shape):
        made = builder.emit_unfolded(name, made, builder.integers(operand))
    builder.lineage[id(first)] = before
    graph.nodes += rest
    for node in rest:
        node.inputs = [made if tensor is other else tensor for tensor in node.inputs]


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
