"""Give the graph another batch size: input types, and the constants in which the old size is written."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod

import numpy as np

from circle_train.errors import ConfigError, ModelError
from circle_train.ir import Graph, Node, Tensor, TensorType
from circle_train.ir.graph import constant
from circle_train.passes.fold import infer_node

SHAPE_INPUT = {"RESHAPE": 1, "BROADCAST_TO": 1, "TRANSPOSE_CONV": 0, "SLICE": 2, "STRIDED_SLICE": 2}
"""Operators whose constant input may hold the batch size."""
DATA_INPUT = {"TRANSPOSE_CONV": 2}
PICKS = ("GATHER", "SLICE", "STRIDED_SLICE", "SPLIT", "SPLIT_V", "UNPACK")
"""Operators that take a part of their first input."""


def set_batch(graph: Graph, batch_size: int | None) -> None:
    """Set the first dimension of every input to batch_size (None: the file's) and infer all types anew."""
    first = next((t.shape[0] for t in graph.inputs if t.type.rank), 1)
    batch = batch_size if batch_size is not None else max(first, 1)
    shapes = [
        (batch, *t.shape[1:]) if t.type.rank and t.shape[0] in (first, -1) else t.shape for t in graph.inputs
    ]
    for tensor, shape in zip(graph.inputs, shapes, strict=True):
        if any(size < 0 for size in shape):
            raise ModelError(
                f"input {tensor}: only the batch may be left open; fix the other sizes: "
                f"ct.load(path, shapes={{'{tensor.name}': {_filled(shape)}}}) "
                f"or --shape {tensor.name}={'x'.join(map(str, _filled(shape)))}"
            )
    set_shapes(graph, shapes)


def _filled(shape: tuple[int, ...]) -> tuple[int, ...]:
    """An example of how open sizes could be fixed."""
    return tuple(128 if size < 0 else size for size in shape)


def set_shapes(graph: Graph, shapes: Sequence[tuple[int, ...]]) -> None:
    """Give every input its shape, stretch the constants in which an old size is written, infer all types anew."""
    old = {tensor: tensor.type for tensor in graph.all_tensors()}
    for tensor, shape in zip(graph.inputs, shapes, strict=True):
        tensor.type = TensorType(tensor.dtype, tuple(shape))
    grown = [
        tensor for tensor in graph.inputs if tensor.type.rank and tensor.shape[0] != old[tensor].shape[0]
    ]
    is_open = not grown or -1 in (grown[0].shape_signature or ())[:1]
    try:
        for node in graph.nodes:
            _rewrite_shape(graph, node, old)
            infer_node(node)
        if not is_open:
            _check_one_axis_grew(graph, old, grown[0])
    except ModelError as error:
        if is_open:
            raise
        raise type(error)(_made_for_one_size(error, grown[0], old)) from error


def fix_sizes(graph: Graph, asked: Mapping[str, Sequence[int]]) -> None:
    """Give sizes that inputs leave open the numbers that are asked for; -1 leaves one open.

    What comes behind the inputs is inferred when a program is made.
    """
    inputs = {tensor.name: tensor for tensor in graph.inputs}
    for name, shape in asked.items():
        if name not in inputs:
            raise ConfigError(f"shapes names '{name}', the model's inputs are {', '.join(inputs)}")
        tensor = inputs[name]
        signature = tensor.shape_signature or tensor.shape
        if len(shape) != len(signature) or any(
            size == 0 or size < -1 or (size != known and -1 not in (size, known))
            for size, known in zip(shape, signature, strict=True)
        ):
            raise ConfigError(
                f"shapes gives '{name}' as {tuple(shape)}, the model has {signature}; only open sizes can be fixed"
            )
        tensor.shape_signature = fixed = tuple(map(max, shape, signature))
        sizes = (old if new < 0 else new for new, old in zip(fixed, tensor.shape, strict=True))
        tensor.type = tensor.type.with_shape(tuple(sizes))


def _check_one_axis_grew(graph: Graph, old: dict[Tensor, TensorType], source: Tensor) -> None:
    """Refuse where sizes of 1 let a stretched shape fit that does not mean the batch: numbers would be wrong."""
    made_for = old[source].shape[0]
    for node in graph.nodes:
        for out in node.outputs:
            if _growths(out, old) > 1:
                raise ModelError(f"{node}: its output grew from {old[out]} to {out.type} along several axes")
        data = node.inputs[0] if node.op.name in PICKS else None
        if data is not None and _growths(data, old) and not any(_growths(out, old) for out in node.outputs):
            raise ModelError(
                f"{node}: of {data.type}, which was {old[data]}, it takes {node.outputs[0].type}"
            )
    for out in graph.outputs:
        before = old[out].shape
        if before and before[0] == made_for and out.shape == before:
            raise ModelError(
                f"output {out}: it stays {out.type} while the input '{source.name}' is {source.type}"
            )


def _growths(tensor: Tensor, old: dict[Tensor, TensorType]) -> int:
    """How many axes of a tensor have another size than in the file."""
    before = old[tensor].shape if tensor in old else tensor.shape
    return sum(map(int.__ne__, tensor.shape, before)) if len(before) == tensor.type.rank else 0


def _made_for_one_size(error: ModelError, tensor: Tensor, old: dict[Tensor, TensorType]) -> str:
    """What to do when the batch size that a file was exported with is written into its operators."""
    made_for, asked = old[tensor].shape[0], tensor.shape[0]
    return (
        f"{error}; the file was exported for batch size {made_for}, which is written into its shapes, and cannot be "
        f"run at {asked}: use batch_size={made_for}, or export it again with an open batch (torch.onnx.export: "
        f"dynamic_axes={{'{tensor.name}': {{0: 'batch'}}}}, or with dynamo=True "
        f"dynamic_shapes={{'{tensor.name}': {{0: 'batch'}}}})"
    )


def _rewrite_shape(graph: Graph, node: Node, old: dict[Tensor, TensorType]) -> None:
    """Stretch a constant shape operand by what the data has been stretched by."""
    position = SHAPE_INPUT.get(node.op.name)
    if position is None:
        return
    data = node.inputs[DATA_INPUT.get(node.op.name, 0)] if node.inputs else None
    operand = node.inputs[position] if position < len(node.inputs) else None
    if data is None or data not in old or old[data].shape == data.shape or not data.type.is_static:
        return
    if operand is not None and not operand.is_constant:
        return
    if operand is not None and _follows_by_itself(node, data, operand):
        return
    before = old[node.outputs[0]].shape
    if node.op.name == "RESHAPE":
        if operand is None and not node.op.new_shape:
            return
        shape = stretched(before, old[data].shape, data.shape)
    elif operand is not None:
        shape = _replaced_first(operand, old[data].shape, data.shape)
    else:
        return
    if shape is not None:
        inputs = [*node.inputs, None][: max(len(node.inputs), position + 1)]
        inputs[position] = constant(
            np.array(shape, np.int32 if operand is None else operand.dtype.numpy), "shape"
        )
        graph.reconnect(node, inputs)


def _follows_by_itself(node: Node, data: Tensor, operand: Tensor) -> bool:
    """Whether the file, which knows its open sizes, wrote the operand so that it holds for any of them."""
    if -1 not in (data.shape_signature or ()):
        return False
    if node.op.name == "RESHAPE":
        return bool((operand.data == -1).any())
    signature = node.outputs[0].shape_signature
    return signature is None or signature[0] != -1


def stretched(
    target: tuple[int, ...], before: tuple[int, ...], after: tuple[int, ...]
) -> tuple[int, ...] | None:
    """The target shape of a RESHAPE whose input grew from `before` to `after` along one axis.

    The axis of the target that grows is the one before which as many elements stand.
    """
    if len(before) != len(after):
        return None
    grown = [axis for axis, (a, b) in enumerate(zip(before, after, strict=True)) if a != b]
    if len(grown) != 1 or prod(before) == 0 or any(size < 0 for size in (*target, *before)):
        return None
    axis = grown[0]
    leading = prod(before[:axis])
    for position, size in enumerate(target):
        grows = size * after[axis]
        if prod(target[:position]) == leading and grows % before[axis] == 0:
            return (*target[:position], grows // before[axis], *target[position + 1 :])
    return None


def _replaced_first(
    operand: Tensor, before: tuple[int, ...], after: tuple[int, ...]
) -> tuple[int, ...] | None:
    """The operand with its first number changed from the old batch to the new one."""
    values = operand.data.reshape(-1).tolist()
    if not values or not before or values[0] != before[0] or before[0] == after[0]:
        return None
    return (after[0], *values[1:])
