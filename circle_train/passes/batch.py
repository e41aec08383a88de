"""Give the graph another batch size: input types, and the constants in which the old size is written."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np

from circle_train.errors import ConfigError, MadeForFewer, ModelError
from circle_train.ir import Graph, Node, Role, Tensor, TensorType
from circle_train.ir.blame import Blame
from circle_train.ir.graph import constant
from circle_train.ir.size import Number, Size, evaluated
from circle_train.ops.axes import Elementwise
from circle_train.ops.numeric.reduce import Reducer
from circle_train.ops.open.sizes import input_sizes
from circle_train.ops.shapes.shape import Reshape
from circle_train.passes.fold import infer_node

Shapes = tuple[tuple[int, ...], ...]
"""Of all inputs."""


def batch_in(sizes: int | Shapes | None) -> int | None:
    """How many samples, if the sizes say so: those of the first input that has any."""
    return next((shape[0] for shape in sizes if shape), None) if isinstance(sizes, tuple) else sizes


def set_batch(graph: Graph, sizes: int | Shapes | None) -> None:
    """Give every input these shapes, or one of so many samples (None: the file's), and infer all types anew."""
    set_shapes(graph, shapes_with(graph, sizes))


def shapes_with(graph: Graph, sizes: int | Shapes | None) -> Sequence[tuple[int, ...]]:
    """The inputs' shapes, where perhaps only the number of samples is said."""
    return sizes if isinstance(sizes, tuple) else _with_batch(graph, sizes)


def _with_batch(graph: Graph, batch_size: int | None) -> Sequence[tuple[int, ...]]:
    """The file's shapes with another batch: the first axis of the first input, what must be equal to it, and what is in
    the file, where that is the first axis of another input."""
    if len(graph.inputs) == 1 and -1 not in (graph.inputs[0].shape_signature or graph.inputs[0].shape)[1:]:
        return _with_first(graph, batch_size)  # nothing else can follow from it
    sizes = input_sizes(graph)
    batch = next((shape[0] for shape in sizes if shape), None)
    if batch_size is not None and isinstance(batch, Size) and batch.symbol is not None:
        stated = _of_the_file(graph, sizes)
        first = {shape[0].symbol for shape in sizes if shape and isinstance(shape[0], Size)} - {None}
        same = {name for name in first if name is not None and stated[name] == stated[batch.symbol]}
        examples = stated | dict.fromkeys(same, batch_size)
        return [tuple(evaluated(size, examples) for size in shape) for shape in sizes]
    return _with_first(graph, batch_size)


def _of_the_file(graph: Graph, sizes: Sequence[Sequence[Number]]) -> dict[str, int]:
    """The numbers that stand in the file for open sizes."""
    found: dict[str, int] = {}
    for tensor, shape in zip(graph.inputs, sizes, strict=True):
        for size, stated in zip(shape, tensor.shape, strict=True):
            if not isinstance(size, Size):
                continue
            for name in size.symbols() - found.keys():
                ones = dict.fromkeys(size.symbols(), 1) | found
                made = (n for n in range(1, stated + 1) if evaluated(size, {**ones, name: n}) == stated)
                found[name] = next(made, 1)
    return found


def _with_first(graph: Graph, batch_size: int | None) -> Sequence[tuple[int, ...]]:
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
    return shapes


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
    is_guessed = not is_open and Role.ONE_SIZE in grown[0].role
    led: set[Tensor] = set()
    try:
        if is_guessed and grown[0].rigid:
            raise ModelError(f"at another batch {grown[0].rigid}")
        for node in graph.nodes:
            _stretch(graph, node, old)
            if not is_open and not is_guessed:
                _keep_samples_apart(graph, node, old, led)
            infer_node(node)
        if not is_open:
            _check_one_axis_grew(graph, old, grown[0], led)
    except ModelError as error:
        if is_open:
            raise
        if is_guessed:
            made_for, asked = (types.shape[0] for types in (old[grown[0]], grown[0].type))
            raise ModelError(
                f"{error}; how this follows from the batch could not be expressed, so that the model was converted for "
                f"{made_for} sample{'s' if made_for > 1 else ''} and does not run at {asked}: load it with the size that "
                f"is wanted, shapes={{'{grown[0].name}': {grown[0].shape}, …}}"
            ) from error
        refusal = MadeForFewer(_made_for_one_size(error, grown[0], old))
        refusal.samples = old[grown[0]].shape[0]
        raise refusal from error


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


def _keep_samples_apart(graph: Graph, node: Node, old: dict[Tensor, TensorType], led: set[Tensor]) -> None:
    """What a file reduces over its one sample, it reduces over each; the result gets an axis of samples in front.

    PyTorch's exporter writes the means of a LayerNorm so: over axes [0, 2], and back by a RESHAPE to [1, 64, 1].
    """
    source = node.inputs[0] if node.inputs else None
    if isinstance(node.op, Reducer) and source not in led and _grown_axes(source, old) == [0]:
        assert source is not None
        axes = node.inputs[1]
        if old[source].shape[0] != 1 or axes is None or not axes.is_constant:
            return
        along = node.op.along(axes.data, source.type.rank)
        if 0 in along:
            rest = np.array([axis for axis in along if axis], np.int32)
            graph.reconnect(node, [source, constant(rest, "axes")])
            led.update(() if node.op.keep_dims else node.outputs)
        return
    followed = [t for t in node.inputs if t in led]
    if not followed:
        return
    out = old[node.outputs[0]]
    if isinstance(node.op, Reshape) and out.rank and out.shape[0] == 1:
        sizes = np.array([followed[0].shape[0], *out.shape[1:]], np.int32)
        graph.reconnect(node, [followed[0], constant(sizes, "shape")])
        return
    ranks = {t.type.rank for t in followed}
    others = [t for t in node.inputs if t is not None and t not in led]
    if (
        not isinstance(node.op.axes, Elementwise)
        or len(ranks) > 1
        or any(not t.is_constant or t.type.rank >= min(ranks) for t in others)
    ):
        raise ModelError(
            f"{node}: it takes {followed[0].name}, which was reduced over the one sample of the file"
        )
    led.update(node.outputs)


def _check_one_axis_grew(
    graph: Graph, old: dict[Tensor, TensorType], source: Tensor, led: Collection[Tensor]
) -> None:
    """Refuse where sizes of 1 let a stretched shape fit that does not mean the batch: numbers would be wrong."""
    made_for = old[source].shape[0]
    for node in graph.nodes:
        if made_for == 1 and _mixes_samples(node, old, led):
            raise ModelError(f"{node}: it makes {node.outputs[0].type} of all samples together")
        for out in node.outputs:
            if len(_grown_axes(out, old)) > 1:
                raise ModelError(f"{node}: its output grew from {old[out]} to {out.type} along several axes")
        data = node.op.axes.source(node) if node.op.axes.picks else None
        if (
            data is not None
            and _grown_axes(data, old)
            and not any(_grown_axes(out, old) for out in node.outputs)
        ):
            raise ModelError(
                f"{node}: of {data.type}, which was {old[data]}, it takes {node.outputs[0].type}"
            )
    for out in graph.outputs:
        before = old[out].shape
        if before and before[0] == made_for and out.shape == before:
            raise ModelError(
                f"output {out}: it stays {out.type} while the input '{source.name}' is {source.type}"
            )


def _mixes_samples(node: Node, old: dict[Tensor, TensorType], led: Collection[Tensor]) -> bool:
    """Whether floats go in for each sample, and come out once."""

    def each(tensors: Sequence[Tensor | None]) -> bool:
        return any(t in led or (t is not None and t.dtype.is_float and _grown_axes(t, old)) for t in tensors)

    return each(node.inputs) and node.outputs[0].dtype.is_float and not each(node.outputs)


def _made_for_one_size(error: ModelError, tensor: Tensor, old: dict[Tensor, TensorType]) -> str:
    """What to do when the batch size that a file was exported with is written into its operators."""
    made_for, asked = old[tensor].shape[0], tensor.shape[0]
    return (
        f"{error}; the file was exported for batch size {made_for}, which is written into its shapes, and cannot be "
        f"run at {asked}: use batch_size={made_for}, or export it again with an open batch (torch.onnx.export: "
        f"dynamic_axes={{'{tensor.name}': {{0: 'batch'}}}}, or with dynamo=True "
        f"dynamic_shapes={{'{tensor.name}': {{0: 'batch'}}}})"
    )


def _stretch(graph: Graph, node: Node, old: dict[Tensor, TensorType]) -> None:
    """Let constants in which an old size is written follow the data that has grown."""
    before: Node | None = None
    for index, tensor in enumerate(node.inputs):
        grown = _grown_axes(tensor, old)
        if tensor is None or not grown or not tensor.type.is_static:
            continue
        before = before or _before(node, old)
        with Blame(node):
            found = node.op.axes.resized(before, index, grown[0], tensor.shape[grown[0]])
        inputs = [*node.inputs, *[None] * (max(found, default=0) + 1 - len(node.inputs))]
        for at, sizes in found.items():
            if not _follows_by_itself(node, tensor, inputs[at], grown[0]):
                inputs[at] = constant(sizes, "shape")
        if inputs != node.inputs:
            graph.reconnect(node, inputs)


def _before(node: Node, old: dict[Tensor, TensorType]) -> Node:
    """The node as the file has it."""
    inputs, outputs = ([_as_it_was(t, old) for t in group] for group in (node.inputs, node.outputs))
    return Node(node.op, inputs, outputs)


def _as_it_was(tensor: Tensor | None, old: dict[Tensor, TensorType]) -> Any:
    """The tensor as the file has it."""
    if tensor is None or tensor.is_constant or tensor not in old:
        return tensor
    return Tensor(tensor.name, old[tensor], shape_signature=tensor.shape_signature)


def _grown_axes(tensor: Tensor | None, old: dict[Tensor, TensorType]) -> list[int]:
    """Axes that have another size than in the file."""
    before = old[tensor].shape if tensor in old else ()
    if tensor is None or before == tensor.shape or len(before) != tensor.type.rank:
        return []
    return [axis for axis, size in enumerate(before) if size != tensor.shape[axis]]


def _follows_by_itself(node: Node, data: Tensor, operand: Tensor | None, axis: int) -> bool:
    """Whether the operand is computed, or written by a file that knows its open sizes so that it holds for any of them."""
    if operand is not None and not operand.is_constant:
        return True
    signature = data.shape_signature
    if operand is None or signature is None or -1 not in signature:
        return False
    if node.op.view_of is not None:
        return bool((operand.data == -1).any())
    return signature[axis] == -1
