"""Layers that learn some input channels: what their weights' gradients need of the input is set aside in the forward pass."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from circle_train.ir import Graph, Node, Tensor
from circle_train.ir.graph import constant
from circle_train.ops.shapes.slice import Slice
from circle_train.settings.parameters import Parameter, is_read_by_channel


def narrow(graph: Graph, trained: Iterable[Parameter]) -> dict[Node, Node]:
    """By layer, one of the learned channels alone, which stands in no graph: its weights' gradient is theirs.

    The slice is made once the layer has been computed, so that nobody waits for the rest of the input. Where something has
    come between weights and layer since (rounding, say) there is none, and the gradient of all has to be cut.
    """
    found: dict[Node, Node] = {}
    slices: dict[tuple[Tensor, int], Tensor] = {}
    for parameter in trained:
        tensor, learned = parameter.tensor, parameter.learned
        readers = graph.readers(tensor)
        if learned == tensor.type or not all(is_read_by_channel(node, tensor) for node in readers):
            continue
        for node in readers:
            x, count = node.inputs[0], learned.shape[-1]
            assert x is not None
            if (x, count) not in slices:
                made = slices[x, count] = Tensor(
                    f"{x.name}[:{count}]", x.type.with_shape((*x.shape[:-1], count))
                )
                graph.insert(Node(Slice(), [x, *_first(made.shape)], [made]), after=node)
            weight = Tensor(tensor.name, learned)
            inputs = [slices[x, count], *(weight if t is tensor else t for t in node.inputs[1:])]
            found[node] = Node(node.op, inputs, list(node.outputs), node.index)
    return found


def cut(graph: Graph, gradient: Tensor, parameter: Parameter) -> Tensor:
    """The gradient of what is learned."""
    if gradient.shape == parameter.learned.shape:
        return gradient
    return graph.emit(Slice(), gradient, *_first(parameter.learned.shape), name=gradient.name)


def _first(sizes: Sequence[int]) -> tuple[Tensor, Tensor]:
    """Where a slice begins, and its sizes."""
    return constant(np.zeros(len(sizes), np.int32)), constant(np.array(sizes, np.int32))
