"""What every tensor's sizes are, written with those that the inputs leave open."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import count

from circle_train.errors import ModelError
from circle_train.ir import Graph, Node, Tensor, TensorType
from circle_train.ir.blame import Blame
from circle_train.ir.node import known_type
from circle_train.ir.size import Number, Size, is_open, replaced, symbol, unknown
from circle_train.ops.base import Op
from circle_train.ops.control.loop import While
from circle_train.ops.open.derive import Derivations, Learnt
from circle_train.ops.open.values import computed
from circle_train.ops.sweeps import recognise_sweeps

Types = dict[Tensor, TensorType]
MOST_LESSONS = 32
"""About sizes that must be equal."""


def open_types(
    graph: Graph, shapes: Sequence[Sequence[Number]], learn: bool = False, known: Derivations | None = None
) -> Types:
    """Types with expressions for sizes, and for integers that are known but for these; of tensors that have any.

    `known`: rules that were followed already, over the same symbols.
    """
    found: Types = {
        tensor: TensorType(tensor.dtype, tuple(shape))  # type: ignore[arg-type]
        for tensor, shape in zip(graph.inputs, shapes, strict=True)
        if is_open(shape)
    }
    numbers = count()
    behind, derivations = set(found), Derivations(learn, known)
    for node in graph.nodes:
        if any(tensor in behind for tensor in node.inputs if tensor is not None):
            behind.update(node.outputs)
            with Blame(node):
                found.update(_made(node, found, next(numbers), derivations))
    return found


def input_sizes(graph: Graph) -> list[tuple[Number, ...]]:
    """The inputs' shapes, in which open sizes that must be equal, or multiples of something, are written so."""
    if any(isinstance(node.op, While) for node in graph.nodes):
        graph = graph.copy()
        recognise_sweeps(graph)
    sizes: list[tuple[Number, ...]] = [
        tuple(symbol(f"{index}.{axis}") if size < 0 else size for axis, size in enumerate(_signature(tensor)))
        for index, tensor in enumerate(graph.inputs)
    ]
    for _ in range(MOST_LESSONS if is_open(size for shape in sizes for size in shape) else 0):
        try:
            open_types(graph, sizes, learn=True)
        except Learnt as lesson:
            sizes = [tuple(replaced(size, lesson.known) for size in shape) for shape in sizes]
        except ModelError:
            break
        else:
            break
    return sizes


def kept(
    op: While, inputs: Sequence[TensorType | None], read: Callable[[int, int], Size]
) -> list[TensorType]:
    """A loop's results have the sizes of what it carries where its body keeps these, whatever they are."""
    body = op.graphs[1]
    types = [type_ for type_ in inputs if type_ is not None]
    found = open_types(body, [type_.shape for type_ in types])
    made = [found.get(t) or TensorType(t.dtype, t.shape) for t in body.outputs]
    return [
        TensorType(
            before.dtype,
            tuple(
                size if _same(size, after.shape[axis]) else read(index, axis)  # type: ignore[misc]
                for axis, size in enumerate(before.shape)
            ),
        )
        for index, (before, after) in enumerate(zip(types, made, strict=True))
    ]


def _same(one: Number, two: Number) -> bool:
    difference = one - two
    return not isinstance(difference, Size) and difference == 0


def _signature(tensor: Tensor) -> tuple[int, ...]:
    signature = tensor.shape_signature
    return signature if signature is not None and len(signature) == tensor.type.rank else tensor.shape


def _may_be_sizes(made: Sequence[TensorType], given: Sequence[TensorType | None]) -> bool:
    """Whether results may be whole numbers that follow from sizes; floats are where an operand is."""
    return not any(t.dtype.is_float for t in made) or any(
        t is not None and t.value is not None and t.value.dtype == object for t in given
    )


def _made(node: Node, found: Types, number: int, derivations: Derivations) -> Types:
    """The types of what the node makes."""
    op: Op = node.op
    inputs = [
        found.get(tensor) or known_type(tensor) if tensor is not None else None for tensor in node.inputs
    ]

    def read(output: int, axis: int) -> Size:
        return unknown(f"?{number}.{output}.{axis}", ("size", node.outputs[output], axis))

    types = (
        kept(op, inputs, read) if isinstance(op, While) else derivations.types(op, node.inputs, inputs, read)
    )
    values = computed(op, inputs) if _may_be_sizes(types, inputs) else None
    result: Types = {}
    for index, (tensor, type_) in enumerate(zip(node.outputs, types, strict=True)):
        value = type_.value if values is None else values[index]
        shape = type_.shape
        if is_open(shape) or (value is not None and is_open(value.reshape(-1))):
            result[tensor] = TensorType(type_.dtype, shape, value)
        elif value is not None:
            result[tensor] = TensorType(type_.dtype, shape, value.astype(tensor.dtype.numpy))
    return result
