"""Which constants are one weight: those that share their numbers on purpose.

Files hold equal bytes once, whatever they mean: the zeros of fresh biases, the threshold of an activation and the axis of a
slice may be one buffer, or one tensor. What has only one number in it says nothing of who it belongs to, so each role
of it is a weight of its own, unless the operators share other weights too: then it is the same layer again. A buffer of
different numbers is shared on purpose.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from dataclasses import replace

import numpy as np

from circle_train.ir import Buffer, Graph, Node, Role, Tensor
from circle_train.ir.graph import constant
from circle_train.ops.shapes.shape import Reshape

Key = tuple[Hashable, ...]


def settle_shared_weights(graph: Graph) -> None:
    """One tensor for each weight, no tensor for two."""
    shared = _shared(graph)
    _part(graph, [t for t in shared if _is_uniform(t) and not t.role & (Role.TIED | Role.FIXED)])
    _merge(graph, [t for t in shared if not _is_uniform(t)])


def _shared(graph: Graph) -> list[Tensor]:
    """The float constants whose bytes are read more than once."""
    constants = [t for t in graph.all_tensors() if t.is_constant and t.dtype.is_float and t.type.size]
    uses: dict[Buffer | None, int] = {}
    for tensor in constants:
        uses[tensor.buffer] = uses.get(tensor.buffer, 0) + sum(
            other is tensor for node in graph.readers(tensor) for other in node.inputs
        )
    return [tensor for tensor in constants if uses[tensor.buffer] > 1]


def _is_uniform(tensor: Tensor) -> bool:
    data = tensor.data
    return bool((data == data.flat[0]).all())


def _part(graph: Graph, tensors: Iterable[Tensor]) -> None:
    """Give each role of a tensor without a face a tensor of its own; the first that is a weight keeps it."""
    for tensor in tensors:
        if tensor.root() is not tensor.origin:
            continue
        readers: dict[Key, list[Node]] = {}
        for node in graph.readers(tensor):
            readers.setdefault(_role(graph, node, tensor), []).append(node)
        if len(readers) == 1:
            continue
        for number, (_, nodes) in enumerate(sorted(readers.items(), key=lambda item: item[0] == ())):
            twin = tensor
            if number:
                twin = replace(tensor, origin=tensor, carried=dict(tensor.carried))
                for node in nodes:
                    graph.reconnect(node, [twin if t is tensor else t for t in node.inputs])
            twin.weight = replace(twin.weight, readers=tuple(node.index for node in nodes))


def _role(graph: Graph, node: Node, tensor: Tensor) -> Key:
    """Alike for the operators of one layer that is used again; () for a number of a formula."""
    index = node.inputs.index(tensor)
    if node.op.input_name(index) not in node.op.parameters:
        return ()
    if tensor.type.size == 1 and not node.op.scalar_parameters:
        return ()
    return (node.op.name, index, *_layer(node))


def _layer(node: Node) -> Key:
    """The nearest weights with a face of their own, on the way back, and how far that is; the node itself if there are none."""
    distance, here = 0, node
    while True:
        weights = {t.buffer for t in here.inputs if t is not None and _has_face(t)}
        if weights:
            return (distance, frozenset(weights))
        before = next((t.producer for t in here.inputs if t is not None and t.producer is not None), None)
        if before is None:
            return (node,)
        distance, here = distance + 1, before


def _has_face(tensor: Tensor) -> bool:
    return tensor.is_constant and tensor.dtype.is_float and tensor.type.size > 1 and not _is_uniform(tensor)


def _merge(graph: Graph, tensors: Iterable[Tensor]) -> None:
    """Let all readers of one buffer read one tensor, through a RESHAPE where the shapes differ."""
    first: dict[Key, Tensor] = {}
    for tensor in tensors:
        chosen = first.setdefault((tensor.buffer, tensor.dtype, tensor.type.size), tensor)
        if chosen is tensor:
            continue
        chosen.weight = replace(chosen.weight, one_with=(*chosen.weight.one_with, tensor.root()))
        new = chosen
        if chosen.shape != tensor.shape:
            node = _reshaped(chosen, tensor)
            graph.insert(node)
            new = node.outputs[0]
        graph.redirect(tensor, new)


def _reshaped(source: Tensor, like: Tensor) -> Node:
    shape = constant(np.array(like.shape, np.int32), "shape")
    return Node(Reshape(new_shape=like.shape), [source, shape], [Tensor(like.name, like.type)])
