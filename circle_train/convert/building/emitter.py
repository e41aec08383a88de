"""Emits Circle operators: folds constants, follows initializers, and keeps symbolic sizes symbolic."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from circle_train.convert.building.provenance import Lineage, Reshaped, Transposed
from circle_train.convert.building.refusal import Refusal
from circle_train.convert.building.sizes import Size, is_symbolic, worlds
from circle_train.ir import DType, Graph, Role, Tensor, TensorType
from circle_train.ir.graph import constant, known_type
from circle_train.ir.tensor_type import Array
from circle_train.ops import REGISTRY, Op

FOLD_LIMIT = 1 << 16
"""Elements of a constant that is not folded if it is also four times as large as its operands."""
SMALL = 4096
"""Elements of a tensor whose value is looked for behind initializers."""


def make(name: str, options: dict[str, Any]) -> Op:
    """An operator by Circle's name."""
    if name not in REGISTRY:
        raise Refusal(f"it needs Circle's {name}, which this version does not compute")
    return REGISTRY[name](**options)


class Emitter:
    """A graph under construction, in `count` worlds of symbolic sizes."""

    def __init__(self, count: int = 1) -> None:
        self.graph = Graph()
        self.count = count
        self.others: dict[Tensor, tuple[TensorType, ...]] = {}
        """By tensor: its types (and values) in the other worlds, where they differ."""
        self.recipes: dict[Tensor, tuple[Op, list[Tensor | None], int]] = {}
        """By folded tensor that differs between worlds: how to compute it at run time."""
        self.lineage: dict[Tensor, Lineage] = {}
        self.turned: set[Tensor] = set()
        """Inputs and outputs that lie channels last, other than in ONNX."""
        self._parameters: dict[Lineage, Tensor] = {}
        self._known: dict[Tensor, Tensor] = {}
        self._materialized: dict[Tensor, Tensor] = {}

    # Emitting

    def __call__(self, name: str, *inputs: Tensor | None, **options: Any) -> Tensor:
        """Emit one operator (or fold it); its first output."""
        return self.emit(make(name, options), inputs)[0]

    def all(self, name: str, *inputs: Tensor | None, **options: Any) -> list[Tensor]:
        """Emit one operator (or fold it); all its outputs."""
        return self.emit(make(name, options), inputs)

    def emit(self, op: Op, inputs: Sequence[Tensor | None]) -> list[Tensor]:
        given = [tensor for tensor in inputs if tensor is not None]
        if op.name == "SHAPE" and given[0].type.is_static:
            return self._fold(
                op,
                list(inputs),
                [
                    (np.array(t.shape, op.infer_types([given[0].type])[0].dtype.numpy),)
                    for t in self.types(given[0])
                ],
            )
        if given and all(tensor.is_constant for tensor in given) and not op.draws:
            folded = self._fold_constants(op, list(inputs))
            if folded is not None:
                return folded
        return self._emit_node(op, [self.at_run_time(tensor) for tensor in inputs])

    def emit_unfolded(self, name: str, *inputs: Tensor | None, **options: Any) -> Tensor:
        """Emit one operator even where its result is known."""
        return self._emit_node(make(name, options), [self.at_run_time(tensor) for tensor in inputs])[0]

    def _emit_node(self, op: Op, inputs: list[Tensor | None]) -> list[Tensor]:
        outputs = self.graph.emit_all(op, *inputs)
        if any(tensor is not None and tensor in self.others for tensor in inputs):
            in_worlds = [
                op.infer_types([self._type(t, world) for t in inputs]) for world in range(1, self.count)
            ]
            for index, output in enumerate(outputs):
                self._remember(output, tuple(types[index] for types in in_worlds))
        return outputs

    def _remember(self, tensor: Tensor, others: tuple[TensorType, ...]) -> None:
        if any(type_.shape != tensor.shape for type_ in others):
            if any(type_.rank != tensor.type.rank for type_ in others):
                raise Refusal("its result has another rank for other sizes of the symbolic dimensions")
            self.others[tensor] = others

    # Folding

    def _fold_constants(self, op: Op, inputs: list[Tensor | None]) -> list[Tensor] | None:
        lineages = [None if tensor is None else self.lineage.get(tensor) for tensor in inputs]
        if any(lineages):
            return self._fold_parameter(op, inputs, lineages)
        infer = op.infer_types([self._type(tensor, 0) for tensor in inputs])
        size = sum(type_.size for type_ in infer if type_.is_static)
        if size > FOLD_LIMIT and size > 4 * sum(tensor.type.size for tensor in inputs if tensor is not None):
            return None
        with np.errstate(all="ignore"):
            values = [
                op.compute([None if t is None else self._value(t, world) for t in inputs])
                for world in range(self._depth(inputs))
            ]
        return self._fold(op, inputs, values)

    def _depth(self, inputs: Sequence[Tensor | None]) -> int:
        return self.count if any(tensor is not None and tensor in self.others for tensor in inputs) else 1

    def _fold(self, op: Op, inputs: list[Tensor | None], values: Sequence[Sequence[Array]]) -> list[Tensor]:
        """Constants for what the op computes in each world, with the recipe where they differ."""
        outputs = []
        for index, value in enumerate(values[0]):
            tensor = self.constant(np.asarray(value))
            rest = [np.asarray(world[index]) for world in values[1:]]
            if any(not _same(np.asarray(value), other) for other in rest):
                self.others[tensor] = tuple(TensorType(DType.of(v.dtype), v.shape, v) for v in rest)
                self.recipes[tensor] = (op, inputs, index)
            outputs.append(tensor)
        return outputs

    def _fold_parameter(
        self, op: Op, inputs: list[Tensor | None], lineages: list[Lineage | None]
    ) -> list[Tensor] | None:
        """Only rearrangements of an initializer are folded, so that it stays one trainable constant."""
        source = inputs[0]
        if (
            source is None
            or lineages[0] is None
            or any(lineages[1:])
            or op.name not in ("TRANSPOSE", "RESHAPE")
        ):
            return None
        (value,) = op.compute([t.data if t is not None else None for t in inputs])
        if op.name == "TRANSPOSE" and inputs[1] is not None:
            step: Transposed | Reshaped = Transposed(tuple(int(axis) for axis in inputs[1].data))
        else:
            step = Reshaped(source.shape, value.shape)
        return [self.parameter(value, lineages[0].then(step), source.role)]

    def at_run_time(self, tensor: Tensor | None) -> Tensor | None:
        """The tensor; where it is a folded constant that depends on a symbol, the nodes that compute it."""
        if tensor is None or tensor not in self.recipes:
            return tensor
        if tensor not in self._materialized:
            op, inputs, index = self.recipes[tensor]
            made = self._emit_node(op, [self.at_run_time(source) for source in inputs])[index]
            made.type = TensorType(made.dtype, tensor.shape, tensor.data)
            self.others[made] = self.others[tensor]
            self._materialized[tensor] = made
        return self._materialized[tensor]

    # Constants

    def constant(self, value: Any, dtype: Any = None) -> Tensor:
        """A number of a formula: never trained."""
        tensor = constant(np.asarray(value, dtype))
        tensor.role = Role.FIXED
        return tensor

    def like(self, tensor: Tensor, value: Any) -> Tensor:
        """A constant of the tensor's element type."""
        return self.constant(value, tensor.dtype.numpy)

    def parameter(self, value: Array, lineage: Lineage, role: Role = Role.PLAIN) -> Tensor:
        """A constant that stands for an initializer of the ONNX model; one for each way it is rearranged."""
        if lineage in self._parameters:
            return self._parameters[lineage]
        self._parameters[lineage] = tensor = constant(value, lineage.name)
        tensor.role = role
        self.lineage[tensor] = lineage
        return tensor

    def cast(self, tensor: Tensor, dtype: DType) -> Tensor:
        """CAST, unless it is of that type."""
        if tensor.dtype == dtype:
            return tensor
        return self("CAST", tensor, in_data_type=tensor.dtype, out_data_type=dtype)

    def integers(self, values: Sequence[int], dtype: Any = np.int32) -> Tensor:
        """A vector of sizes, axes or indices; symbolic entries stay computable."""
        tensor = self.constant(np.array([int(value) for value in values], dtype))
        if is_symbolic(values):
            columns = [worlds(value, self.count) for value in values]
            arrays = [np.array(column, dtype) for column in zip(*columns, strict=True)]
            self.others[tensor] = tuple(TensorType(tensor.dtype, a.shape, a) for a in arrays[1:])
            parts: list[Tensor | None] = [self._scalar(value, dtype) for value in values]
            self.recipes[tensor] = (make("PACK", {"values_count": len(parts), "axis": 0}), parts, 0)
        return tensor

    def _scalar(self, value: int, dtype: Any) -> Tensor:
        """A scalar tensor of a size."""
        if not isinstance(value, Size):
            return self.constant(value, dtype)
        name, *operands = value.formula
        if name == "element":
            vector, index = operands
            flat = vector if vector.type.rank else self("RESHAPE", vector, self.integers([1]))
            picked = self("SLICE", flat, self.integers([index]), self.integers([1]))
            return self.cast(self("RESHAPE", picked, self.integers([])), DType.of(dtype))
        if name == "size":
            shape = self("SHAPE", operands[0], out_type=DType.of(dtype))
            begin, size = self.integers([operands[1]]), self.integers([1])
            return self("RESHAPE", self("SLICE", shape, begin, size), self.integers([]))
        return self(name, self._scalar(operands[0], dtype), self._scalar(operands[1], dtype))

    # What is known of tensors

    def _type(self, tensor: Tensor | None, world: int) -> TensorType | None:
        if tensor is not None and world and tensor in self.others:
            return self.others[tensor][world - 1]
        return known_type(tensor)

    def _value(self, tensor: Tensor, world: int) -> Array:
        if world and tensor in self.others:
            value = self.others[tensor][world - 1].value
            assert value is not None
            return value
        return tensor.data

    def types(self, tensor: Tensor) -> list[TensorType]:
        """The tensor's type in every world where it differs."""
        return [tensor.type, *self.others.get(tensor, ())]

    def set_worlds(self, tensor: Tensor, shapes: Sequence[tuple[int, ...]]) -> None:
        """Declare the shapes of a graph input in the other worlds."""
        self._remember(tensor, tuple(TensorType(tensor.dtype, shape) for shape in shapes))

    def known(self, tensor: Tensor | None) -> Tensor | None:
        """The tensor as a constant, also where it was not folded because an initializer takes part."""
        if tensor is None or tensor.is_constant:
            return tensor
        if tensor in self._known:
            return self._known[tensor]
        node = tensor.producer
        if node is None or not 0 <= tensor.type.size <= SMALL:
            return None
        inputs = [self.known(source) for source in node.inputs]
        if any(
            source is None and given is not None for source, given in zip(inputs, node.inputs, strict=True)
        ):
            return None
        with np.errstate(all="ignore"):
            depth = range(self._depth(inputs))
            values = [
                node.op.compute([None if t is None else self._value(t, world) for t in inputs])
                for world in depth
            ]
        folded = self._fold(node.op, list(node.inputs), values)[node.outputs.index(tensor)]
        self._known[tensor] = folded
        if folded in self.recipes:
            self._materialized[folded] = tensor
        return folded


def _same(first: Array, second: Array) -> bool:
    return first.shape == second.shape and bool(
        np.array_equal(first, second, equal_nan=first.dtype.kind in "fc")
    )
