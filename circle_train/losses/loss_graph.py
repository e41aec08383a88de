"""A traced loss as data that a settings file can hold: its operators, their options, its constants."""

from __future__ import annotations

import base64
import enum
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, fields
from typing import Any

import numpy as np

from circle_train.errors import CircleTrainError, ConfigError
from circle_train.ir import DType, Graph, Tensor, TensorType
from circle_train.ir.graph import constant
from circle_train.ops import INTERNAL, REGISTRY, Op


def describe(graph: Graph) -> dict[str, Any]:
    """The graph as numbers, strings, lists and mappings."""
    numbers = {tensor: index for index, tensor in enumerate(graph.inputs)}
    nodes = []
    for node in graph.nodes:
        inputs = [None if t is None else numbers[t] if t in numbers else _constant(t) for t in node.inputs]
        numbers.update((out, len(numbers) + i) for i, out in enumerate(node.outputs))
        nodes.append({"op": node.op.name, "options": _options(node.op), "inputs": inputs})
    return {
        "inputs": [{"type": t.dtype.name, "shape": list(t.shape)} for t in graph.inputs],
        "nodes": nodes,
        "output": numbers[graph.outputs[0]],
    }


def restore(data: Mapping[str, Any], where: str) -> Graph:
    """The inverse; every operator's type rule is asked again."""
    graph = Graph("loss")
    try:
        for number, entry in enumerate(data["inputs"]):
            name = f"input{number}"
            graph.inputs.append(Tensor(name, TensorType(DType[entry["type"]], _shape(entry["shape"]))))
        tensors = list(graph.inputs)
        for node in data["nodes"]:
            inputs = [_operand(tensors, value) for value in node["inputs"]]
            tensors += graph.emit_all(_operator(node["op"], node["options"]), *inputs)
        graph.outputs.append(tensors[data["output"]])
    except (CircleTrainError, LookupError, TypeError, ValueError, AttributeError) as error:
        raise ConfigError(f"{where}: the traced loss is damaged ({error}); write the settings anew") from None
    return graph


def _options(op: Op) -> dict[str, Any]:
    found = {}
    for field in fields(op):
        value = getattr(op, field.name)
        if value != field.default:
            plain = isinstance(value, (bool, int, float, str, tuple, enum.Enum))
            if not plain:
                raise ConfigError(f"{op.name}: its option {field.name} is {value!r}, which no file can hold")
            found[field.name] = value.value if isinstance(value, enum.Enum) else value
    return found


def _operator(name: str, options: Mapping[str, Any]) -> Op:
    cls = REGISTRY.get(name) or INTERNAL[name]
    defaults = {field.name: field.default for field in fields(cls)}
    return cls(**{key: _option(defaults[key], value) for key, value in options.items()})


def _option(default: Any, value: Any) -> Any:
    if isinstance(default, enum.Enum) and default is not MISSING:
        return type(default)(value)
    return tuple(value) if isinstance(value, list) else value


def _constant(tensor: Tensor) -> dict[str, Any]:
    array = tensor.data
    elements = base64.b64encode(np.ascontiguousarray(array).tobytes()).decode()
    return {"type": tensor.dtype.name, "shape": list(array.shape), "elements": elements}


def _shape(sizes: Sequence[Any]) -> tuple[int, ...]:
    if not all(type(size) is int and size >= 0 for size in sizes):
        raise ValueError(f"a shape is {sizes}, expected whole numbers from 0")
    return tuple(sizes)


def _operand(tensors: list[Tensor], value: Any) -> Tensor | None:
    if value is None:
        return None
    if isinstance(value, int):
        return tensors[value]
    dtype = DType[value["type"]].numpy
    array = np.frombuffer(base64.b64decode(value["elements"]), dtype).reshape(value["shape"])
    return constant(array)


__all__ = ["describe", "restore"]
