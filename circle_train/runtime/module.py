"""New weights into the model that was loaded; everything else stays as the file had it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from circle_train import format
from circle_train.errors import ConfigError
from circle_train.format.metadata import hints
from circle_train.format.model.carried import Apart
from circle_train.ir import Buffer, DType, Graph, Module, Quantization, Tensor
from circle_train.ir.tensor_type import Array
from circle_train.ops.numeric.quantize import dequantize, quantize
from circle_train.passes.dead import drop_dead_nodes
from circle_train.passes.given import fix_inputs
from circle_train.passes.heads.float_head import make_float_head
from circle_train.passes.heads.new_head import make_head
from circle_train.passes.integers.four_bits import LIMITS, WIDE, packed
from circle_train.runtime.state import State
from circle_train.settings.parameters import Parameter


def with_outputs(module: Module, names: Sequence[str]) -> Module:
    """A module that computes the tensors of these names, and holds nothing that they do not need."""
    old = module.main
    known = {tensor.name: tensor for tensor in old.all_tensors() if not tensor.is_constant}
    if unknown := [name for name in names if name not in known]:
        raise ConfigError(
            f"outputs: there is no tensor '{unknown[0]}', the model has {', '.join(list(known)[:8])}, …"
        )
    graph = old.copy()
    twins = {tensor.origin: tensor for tensor in graph.all_tensors()}
    graph.outputs = [twins[known[name]] for name in names]
    graph.carried = dict(old.carried)
    drop_dead_nodes(graph)
    for index, node in enumerate(graph.nodes):
        node.index = index
    return _with_graph(module, graph)


def with_inputs(module: Module, values: Mapping[str, Any]) -> Module:
    """A module whose inputs of these names are constants of these values."""
    graph = module.main.copy()
    fix_inputs(graph, values)
    return _with_graph(module, graph)


def with_float_head(module: Module, count: int) -> Module:
    """A module whose last operators compute in float, and hold what they held as integers."""
    graph = module.main.copy()
    make_float_head(graph, count)
    made = format.read(format.write(_with_graph(module, graph)))
    hints.restore(made)
    return made


def with_head(module: Module, outputs: int, scores: str) -> Module:
    """A module that ends in a new layer of so many outputs; what it said of its old outputs is gone."""
    graph = module.main.copy()
    make_head(graph, outputs, scores)
    made = format.read(format.write(_with_graph(module, graph)))
    hints.restore(made)
    return made


def _with_graph(module: Module, graph: Graph) -> Module:
    """A module of this main graph and the buffers that are still needed."""
    constants = [t.buffer for g in (graph, *module.graphs[1:]) for t in g.all_tensors()]
    needed = dict.fromkeys(buffer for buffer in constants if buffer is not None)
    needed |= dict.fromkeys(entry.buffer for entry in module.metadata)
    kept = [buffer for i, buffer in enumerate(module.buffers) if not i or buffer in needed]
    fresh = [buffer for buffer in needed if buffer not in set(module.buffers)]
    graphs = [graph, *module.graphs[1:]]
    return hints.attach(replace(module, graphs=graphs, buffers=kept + fresh, carried={}))


def with_values(module: Module, state: State) -> Module:
    """A module that shares everything with the loaded one but the buffers of changed parameters.

    Whatever else has its numbers in such a buffer keeps them.
    """
    users: dict[Buffer | None, set[Tensor]] = {}
    for tensor in [t for graph in module.graphs for t in (*graph.tensors, *graph.all_tensors())]:
        users.setdefault(tensor.buffer, set()).add(tensor)
    fresh: dict[Buffer, Buffer] = {}
    apart = Apart()
    for name, parameter in state.parameters.items():
        root = parameter.root
        if root.buffer is None or not is_changed(state, parameter):
            continue
        made = Buffer(encode(root, state.value(name), parameter.tensor.quantization), root.buffer.carried)
        if not root.dtype.is_float and np.array_equal(made.bytes, root.buffer.bytes):
            continue
        if parameter.readers is not None:
            _part_readers(module.main, parameter, made, apart)
        elif users[root.buffer] <= set(parameter.stands_for):
            fresh[root.buffer] = made
        else:
            apart.buffers.update(dict.fromkeys(parameter.stands_for, made))
    return hints.with_values(format.with_buffers(module, fresh, apart))


def _part_readers(graph: Graph, parameter: Parameter, made: Buffer, apart: Apart) -> None:
    """Let the operators that mean this parameter read a tensor of their own; others keep the old one."""
    root, readers = parameter.root, parameter.readers or ()
    own = replace(root, buffer=made)
    for node in graph.readers(root):
        if node.index in readers:
            inputs = apart.inputs.get(node, node.inputs)
            apart.inputs[node] = [own if t is root else t for t in inputs]


LARGEST_BIAS = (1 << 31) - 1
"""What is cut off ends here."""


def encode(root: Tensor, value: Array, meaning: Quantization | None = None) -> Array:
    """A float32 value as the bytes that the file's tensor holds; `meaning` of its integers, if it does not say so itself.

    Integers of 32 bits hold more than a float32 does: those whose reals have not changed stay as they are.
    """
    meaning = meaning or root.quantization
    if meaning is not None and not root.dtype.is_float:
        value = integers_of(root, value, meaning)
        if root.dtype in WIDE:
            return packed(value)
        if root.dtype is DType.INT32 and np.abs(value.astype(np.int64)).max(initial=0) >= LARGEST_BIAS:
            raise ConfigError(
                f"'{root.name}' was trained beyond the 32 bits of its integers (scale {min(meaning.scale):g}); train with a "
                "smaller learning rate"
            )
    assert root.dtype.numpy is not None
    return np.ascontiguousarray(value, root.dtype.numpy).reshape(-1).view(np.uint8)


def integers_of(root: Tensor, value: Array, meaning: Quantization) -> Array:
    """What a weight is rounded to, a number each, in the type's range."""
    if root.dtype in WIDE:
        return np.clip(quantize(value, meaning, DType.of(WIDE[root.dtype])), *LIMITS[root.dtype])
    is_as_it_was = value == dequantize(root.data, meaning)
    found: Array = np.where(is_as_it_was, root.data, quantize(value, meaning, root.dtype))
    return found


def is_changed(state: State, parameter: Parameter) -> bool:
    """Frozen parameters that nobody set are still views of the file."""
    return state.is_own(parameter.name)
