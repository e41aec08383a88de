"""ONNX models that differ from another by one attribute, operand or number of one node, or by who sees a result."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
from onnx import AttributeProto, ModelProto, helper, numpy_helper, shape_inference

Change = Callable[[Any, Any], None]
"""Of a model and the node in it."""
FEW = 8


def near(model: ModelProto) -> Iterator[tuple[str, ModelProto]]:
    """What differs, and the model, which need not fit together."""
    whole = shape_inference.infer_shapes(model).graph
    types = {info.name: info.type.SerializeToString() for info in [*whole.value_info, *whole.input]}
    there = [info.name for info in model.graph.input]
    seen = {info.name for info in model.graph.output}
    for number, node in enumerate(model.graph.node):
        changes: list[tuple[str, Change]] = [*_attributes(node), *_operands(model, node, types, there)]
        there += node.output
        if node.output[0] not in seen:
            changes.append(("is seen", _seen))
        for what, change in changes:
            other = ModelProto()
            other.CopyFrom(model)
            change(other, other.graph.node[number])
            for info in other.graph.output:
                info.type.Clear()
            yield f"{node.op_type} {node.output[0]} {what}", other


def _attributes(node: Any) -> Iterator[tuple[str, Change]]:
    for place, attribute in enumerate(node.attribute):
        name, kind = attribute.name, attribute.type
        yield f"without {name}", lambda _, twin, place=place: twin.attribute.pop(place)  # type: ignore[misc]
        if kind == AttributeProto.INT:
            for value in {1 - attribute.i} if attribute.i in (0, 1) else {attribute.i - 1, attribute.i + 1}:
                yield f"{name} {value}", partial(_set, place, "i", value)
        elif kind == AttributeProto.FLOAT:
            yield f"{name} more", partial(_set, place, "f", attribute.f + 0.5)
        elif kind == AttributeProto.INTS:
            for end in {0, len(attribute.ints) - 1} - {-1}:
                more = [value + (i == end) for i, value in enumerate(attribute.ints)]
                yield f"{name} {more}", partial(_set, place, "ints", more)


def _set(place: int, field: str, value: Any, _: Any, twin: Any) -> None:
    if field == "ints":
        twin.attribute[place].ints[:] = value
    else:
        setattr(twin.attribute[place], field, value)


def _operands(
    model: ModelProto, node: Any, types: dict[str, bytes], there: list[str]
) -> Iterator[tuple[str, Change]]:
    """Another tensor of the same type, or other numbers."""
    constants = {tensor.name: tensor for tensor in model.graph.initializer}
    for place, given in enumerate(node.input):
        others = [name for name in there if name not in node.input and types.get(name, 0) == types.get(given)]
        for name in others[-2:]:
            yield f"input {place} is {name}", partial(_read, place, name)
        if given in constants:
            numbers = numpy_helper.to_array(constants[given])
            if numbers.size <= FEW and numbers.dtype.kind in "if":
                yield f"input {place} more", partial(_constant, place, numbers + numbers.dtype.type(1))
                yield f"input {place} turned", partial(_constant, place, -numbers)


def _read(place: int, name: str, _: Any, twin: Any) -> None:
    twin.input[place] = name


def _constant(place: int, numbers: Any, model: Any, twin: Any) -> None:
    model.graph.initializer.append(numpy_helper.from_array(np.asarray(numbers), "other"))
    twin.input[place] = "other"


def _seen(model: Any, twin: Any) -> None:
    model.graph.output.append(helper.make_empty_tensor_value_info(twin.output[0]))
