"""Emits Circle operators: folds constants, follows initializers, and keeps symbolic sizes symbolic."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import count
from typing import Any

import numpy as np

from circle_train.convert.building.provenance import Lineage, Reshaped, Transposed
from circle_train.convert.building.refusal import Refusal
from circle_train.errors import ModelError
from circle_train.ir import DType, Graph, Role, Tensor, TensorType
from circle_train.ir.graph import constant
from circle_train.ir.node import known_type
from circle_train.ir.rearranged import rearranged
from circle_train.ir.size import Number, Size, evaluated, is_open, unknown
from circle_train.ir.tensor_type import Array
from circle_train.ops import REGISTRY, Op
from circle_train.ops.control.loop import While
from circle_train.ops.open.derive import Derivations, unequal
from circle_train.ops.open.sizes import kept
from circle_train.ops.open.values import LONGEST, computed

FOLD_LIMIT = 1 << 16
"""Elements of a constant that is not folded if it is also four times as large as its operands."""
MOST, USUAL = 1 << 14, 16
"""Operators that a graph may have beyond what each of its nodes usually becomes: some are written out cell by cell."""
SMALL = 4096
"""Elements of a tensor whose value is looked for behind initializers."""


def make(name: str, options: dict[str, Any]) -> Op:
    """An operator by Circle's name."""
    if name not in REGISTRY:
        raise Refusal(f"it needs Circle's {name}, which this version does not compute")
    return REGISTRY[name](**options)


class Unfit(ModelError):
    """The examples of open sizes do not suit the model; others may, of which these are 0."""

    def __init__(self, message: str, *equations: Number) -> None:
        super().__init__(message)
        self.equations = [equation for equation in equations if isinstance(equation, Size)]


class Emitter:
    """A graph under construction. Open sizes are given examples, from which nothing is concluded; what is known of them
    are expressions of symbols."""

    def __init__(self, examples: Mapping[str, int] | None = None) -> None:
        self.graph = Graph()
        self.examples = dict(examples or {})
        """A number for every symbol."""
        self.open: dict[Tensor, TensorType] = {}
        """By tensor whose shape, or known value, depends on symbols: its type, sizes and values as expressions."""
        self.recipes: dict[Tensor, tuple[Op, list[Tensor | None], int]] = {}
        """By folded tensor that depends on symbols: how to compute it at run time."""
        self.lineage: dict[Tensor, Lineage] = {}
        self.stored: dict[Tensor, str] = {}
        """Integers as the file holds them: the names of initializers."""
        self.four_bits: frozenset[str] = frozenset()
        """Of initializers that the file packs two elements of into a byte."""
        self.widened: dict[Tensor, Tensor] = {}
        """What they stand for, once for all who read it."""
        self.turned: set[Tensor] = set()
        """Inputs and outputs that lie channels last, other than in ONNX."""
        self._parameters: dict[Lineage, Tensor] = {}
        self._known: dict[Tensor, Tensor | None] = {}
        self._knowable: set[Tensor] = set()
        """Made of constants alone, and small."""
        self.derivations = Derivations()
        self._materialized: dict[Tensor, Tensor] = {}
        self.outer: Emitter | None = None
        """Of the graph that runs this one, and whose tensors its nodes may read."""
        self.most = MOST
        self._numbers = count()

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
            (type_,) = op.infer_types([given[0].type])
            return self._fold(op, list(inputs), [np.array(given[0].shape, type_.dtype.numpy)])
        if given and all(tensor.is_constant for tensor in given) and not op.draws:
            folded = self._fold_constants(op, list(inputs))
            if folded is not None:
                return folded
        return self._emit_node(op, [self.at_run_time(tensor) for tensor in inputs])

    def emit_unfolded(self, name: str, *inputs: Tensor | None, **options: Any) -> Tensor:
        """Emit one operator even where its result is known."""
        return self._emit_node(make(name, options), [self.at_run_time(tensor) for tensor in inputs])[0]

    def emit_unfolded_op(self, op: Op, inputs: Sequence[Tensor | None]) -> list[Tensor]:
        """The same of an operator that is made already; all its outputs."""
        return self._emit_node(op, [self.at_run_time(tensor) for tensor in inputs])

    def _emit_node(self, op: Op, inputs: list[Tensor | None]) -> list[Tensor]:
        if len(self.graph.nodes) >= self.most:
            raise Refusal(f"written out, its graph has more than {self.most} operators")
        types = self._derived(op, inputs)
        try:
            outputs = self.graph.emit_all(op, *inputs)
        except ModelError as error:
            if types is None:
                raise
            raise Unfit(str(error), *unequal(op, [self.type_of(tensor) for tensor in inputs])) from error
        for output, type_ in zip(outputs, types or (), strict=False):
            self._remember(output, type_)
        if all(tensor is None or tensor.is_constant or tensor in self._knowable for tensor in inputs):
            self._knowable.update(output for output in outputs if 0 <= output.type.size <= SMALL)
        return outputs

    def _derived(self, op: Op, inputs: Sequence[Tensor | None]) -> list[TensorType] | None:
        """The output types where an operand depends on symbols."""
        if not any(tensor in self.open for tensor in inputs if tensor is not None):
            return None
        number = next(self._numbers)

        def read(output: int, axis: int) -> Size:
            return unknown(f"?{number}.{output}.{axis}", ("unknown",))

        if isinstance(op, While):
            return kept(op, [self.type_of(tensor) for tensor in inputs], read)
        return self.derivations.types(op, inputs, [self.type_of(tensor) for tensor in inputs], read)

    def _remember(self, tensor: Tensor, type_: TensorType) -> None:
        """Note what is open; sizes without an expression have those of the example."""
        for example, size in zip(tensor.shape, type_.shape, strict=True):
            if isinstance(size, Size) and example >= 0:
                self.examples.update((a.text, example) for a in size.atoms() if a.text not in self.examples)
        if is_open(type_.shape) or (type_.value is not None and type_.value.dtype == object):
            self.open[tensor] = type_

    # Folding

    def _fold_constants(self, op: Op, inputs: list[Tensor | None]) -> list[Tensor] | None:
        lineages = [None if tensor is None else self.lineage.get(tensor) for tensor in inputs]
        if any(lineages):
            return self._fold_parameter(op, inputs, lineages)
        infer = op.infer_types([known_type(tensor) for tensor in inputs])
        size = sum(type_.size for type_ in infer if type_.is_static)
        if size > FOLD_LIMIT and size > 4 * sum(tensor.type.size for tensor in inputs if tensor is not None):
            return None
        with np.errstate(all="ignore"):
            values = op.compute([None if t is None else t.data for t in inputs])
        return self._fold(op, inputs, values)

    def _fold(self, op: Op, inputs: list[Tensor | None], values: Sequence[Array]) -> list[Tensor]:
        """Constants for what the op computes, with the recipe where that depends on symbols."""
        outputs = [self.constant(np.asarray(value)) for value in values]
        types = self._derived(op, inputs)
        if types is None:
            return outputs
        found = computed(op, [self.type_of(tensor) for tensor in inputs])
        for index, (tensor, type_) in enumerate(zip(outputs, types, strict=True)):
            value = type_.value if type_.value is not None else None if found is None else found[index]
            is_integer = tensor.data.dtype.kind in "iu"
            if value is None and is_integer and tensor.type.size <= LONGEST:
                value = self._unknown_elements(tensor)
            if value is not None and value.dtype == object and not is_open(value.reshape(-1)):
                value = value.astype(tensor.dtype.numpy)
            if value is None or value.dtype == object or is_open(type_.shape):
                self._remember(tensor, type_)
                self.open[tensor] = TensorType(type_.dtype, type_.shape, value)
                self.recipes[tensor] = (op, inputs, index)
        return outputs

    def _unknown_elements(self, tensor: Tensor) -> Array:
        """Each element as a size that is read while running."""
        number = next(self._numbers)
        names = [f"?{number}.{i}" for i in range(tensor.type.size)]
        self.examples.update(zip(names, tensor.data.reshape(-1).tolist(), strict=True))
        value = np.empty(len(names), object)
        value[:] = [unknown(name, ("unknown",), None) for name in names]
        return value.reshape(tensor.shape)

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
            or any(tensor in self.open for tensor in inputs if tensor is not None)
        ):
            return None
        (made,) = op.infer_types([known_type(tensor) for tensor in inputs])
        step: Transposed | Reshaped = Reshaped(source.shape, made.shape)
        if op.name == "TRANSPOSE" and inputs[1] is not None:
            step = Transposed(tuple(int(axis) for axis in inputs[1].data))
        return [self.parameter(rearranged(source, step.forward), lineages[0].then(step), source.role)]

    def at_run_time(self, tensor: Tensor | None) -> Tensor | None:
        """The tensor; where it is a folded constant that depends on a symbol, the nodes that compute it."""
        if tensor is not None and self.outer is not None and tensor not in self.recipes:
            return self.outer.at_run_time(tensor)
        if tensor is None or tensor not in self.recipes:
            return tensor
        if tensor not in self._materialized:
            op, inputs, index = self.recipes[tensor]
            made = self._emit_node(op, [self.at_run_time(source) for source in inputs])[index]
            made.type = TensorType(made.dtype, tensor.shape, tensor.data)
            self.open[made] = self.open[tensor]
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

    def parameter(self, value: Array | Tensor, lineage: Lineage, role: Role = Role.PLAIN) -> Tensor:
        """A constant that stands for an initializer of the ONNX model; one for each way it is rearranged."""
        if lineage in self._parameters:
            return self._parameters[lineage]
        self._parameters[lineage] = tensor = value if isinstance(value, Tensor) else constant(value)
        tensor.name, tensor.role = lineage.name, role | Role.TIED
        self.lineage[tensor] = lineage
        return tensor

    def cast(self, tensor: Tensor, dtype: DType) -> Tensor:
        """CAST, unless it is of that type."""
        if tensor.dtype == dtype:
            return tensor
        return self("CAST", tensor, in_data_type=tensor.dtype, out_data_type=dtype)

    def example(self, value: Number) -> int:
        """The number that stands for a size in the examples."""
        return evaluated(value, self.examples) if isinstance(value, Size) else int(value)

    # What is known of tensors

    def type_of(self, tensor: Tensor | None) -> TensorType | None:
        """The type, sizes and values as expressions where they are open."""
        return self.open.get(tensor) or known_type(tensor) if tensor is not None else None

    def types(self, tensor: Tensor) -> list[TensorType]:
        """The type with what is open as expressions, and that of the example."""
        return [self.open[tensor], tensor.type] if tensor in self.open else [tensor.type]

    def symbols_of(self, tensor: Tensor) -> set[str]:
        """All that its shape, or known value, depends on."""
        type_ = self.open.get(tensor)
        if type_ is None:
            return set()
        sizes = [*type_.shape, *([] if type_.value is None else type_.value.reshape(-1))]
        return {name for size in sizes if isinstance(size, Size) for name in size.symbols()}

    def set_open(self, tensor: Tensor, shape: Sequence[Any]) -> None:
        """Declare the sizes of a graph input."""
        self._remember(tensor, TensorType(tensor.dtype, tuple(shape)))

    def known(self, tensor: Tensor | None) -> Tensor | None:
        """The tensor as a constant, also where it was not folded because an initializer takes part."""
        if tensor is None or tensor.is_constant:
            return tensor
        if tensor not in self._known:
            self._known[tensor] = self._known_result(tensor)
        return self._known[tensor]

    def _known_result(self, tensor: Tensor) -> Tensor | None:
        node = tensor.producer
        if node is None or tensor not in self._knowable:
            return None
        inputs = []
        for source in node.inputs:
            inputs.append(self.known(source))
            if source is not None and inputs[-1] is None:
                return None
        with np.errstate(all="ignore"):
            values = node.op.compute([None if t is None else t.data for t in inputs])
        folded = self._fold(node.op, inputs, values)[node.outputs.index(tensor)]
        if folded in self.recipes:
            self._materialized[folded] = tensor
        return folded
