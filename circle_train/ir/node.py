"""What graphs are made of: nodes, the tensors between them, and the buffers behind constant ones."""

from __future__ import annotations

import enum
from collections.abc import Callable, Sequence
from dataclasses import field, fields, replace
from typing import Any, NamedTuple, Protocol

import numpy as np

from circle_train.errors import ModelError
from circle_train.ir.tensor_type import Array, DType, Quantization, TensorType
from circle_train.record import mutable, record

EMPTY = np.empty(0, np.uint8)


class Operation(Protocol):
    """What a graph needs to know of an operator: its name and its type rule (see ops.base.Op)."""

    @property
    def name(self) -> str: ...

    def infer_types(self, inputs: Sequence[TensorType | None]) -> tuple[TensorType, ...]: ...


class StateKey(NamedTuple):
    """Where a tensor's memory lives between steps: ("value" | an optimizer slot | "scalars", owner)."""

    kind: str
    owner: str


@mutable
class Buffer:
    """Raw bytes of constants; tensors that share one Buffer share their values."""

    held: Array = field(default_factory=lambda: EMPTY, repr=False)
    carried: dict[str, Any] = field(default_factory=dict, repr=False)

    @property
    def bytes(self) -> Array:
        return self.held

    @property
    def nbytes(self) -> int:
        return self.held.size

    @property
    def behind(self) -> Array:
        """What lies in memory, or in a mapped file, for it."""
        return self.held

    @property
    def is_at_hand(self) -> bool:
        """Whether nothing is to be made first (see ir/rearranged.py)."""
        return self.behind is self.held


class Role(enum.Flag):
    """What training must know of a constant, or of an input."""

    PLAIN = 0

    FIXED = enum.auto()
    """A number of a formula: never trained."""
    STATISTIC = enum.auto()
    """A running mean or variance."""
    NOMINAL = enum.auto()
    """A parameter whose value the file left out."""
    TIED = enum.auto()
    """The source of the model calls it by one name: whoever reads it reads one weight."""
    GRID = enum.auto()
    """No number of the model, but of the scales of its integers."""
    ONE_SIZE = enum.auto()
    """An input of any number of samples in its source, of which only this one could be expressed: no parts stand for others."""


@record
class Parts:
    """Numbers for the entries of an axis."""

    axis: int
    values: tuple[float, ...]

    def along(self, rank: int) -> Array:
        """As an array that a tensor of this rank can be multiplied by."""
        shape = [1] * rank
        shape[self.axis] = -1
        return np.array(self.values, np.float32).reshape(shape)


@record
class Weight:
    """What passes found out about a constant, for those who train it and write it back."""

    unit: float | None = None
    """In an integer model: what steps are counted in whose length does not follow the gradient's."""
    parts: Parts | None = None
    """How much of the unit each channel has."""
    one_with: tuple[Tensor, ...] = ()
    """Further tensors of the loaded module that hold these numbers."""
    readers: tuple[int, ...] | None = None
    """The loaded operators that read it, where others read the same tensor as something else."""


NO_WEIGHT = Weight()


@mutable
class Variable:
    """What a run of a streaming model begins with, and what it leaves behind."""

    name: str
    first: Tensor | None = None
    last: Tensor | None = None


@mutable
class Tensor:
    """A value in a graph: an input, a constant (has a buffer), a state, or the output of a node."""

    name: str
    type: TensorType
    buffer: Buffer | None = None
    producer: Node | None = field(default=None, repr=False)
    state: StateKey | None = None
    quantization: Quantization | None = None
    is_variable: bool = False
    shape_signature: tuple[int, ...] | None = None
    origin: Tensor | None = field(default=None, repr=False)
    """The tensor of the loaded module that this one was copied from."""
    role: Role = Role.PLAIN
    weight: Weight = NO_WEIGHT
    carried: dict[str, Any] = field(default_factory=dict, repr=False)
    """Fields of the file that we keep without interpreting them."""
    rigid: str = ""
    """Of an input of one size: why its model does not grow to another number of samples."""
    known: tuple[Any, Any, Any, Any] | None = field(default=None, repr=False)
    """The constant's type with its value, behind the three that this was made of."""

    @property
    def shape(self) -> tuple[int, ...]:
        return self.type.shape

    @property
    def dtype(self) -> DType:
        return self.type.dtype

    @property
    def is_constant(self) -> bool:
        """Has bytes in the file (a zero-element tensor is constant when it has a buffer at all)."""
        return self.buffer is not None and (self.buffer.nbytes > 0 or self.type.size == 0)

    @property
    def is_at_hand(self) -> bool:
        """Whether its elements can be looked at for nothing."""
        return self.buffer is not None and self.buffer.is_at_hand

    @property
    def data(self) -> Array:
        """The constant's elements, as a read-only view of its buffer."""
        numpy_dtype = self.dtype.numpy
        if self.buffer is None or numpy_dtype is None:
            raise ModelError(f"tensor '{self.name}' has no elements that numpy can view")
        return self.buffer.bytes.view(numpy_dtype).reshape(self.shape)

    def root(self) -> Tensor:
        """The tensor of the loaded module at the end of the chain of copies."""
        tensor = self
        while tensor.origin is not None:
            tensor = tensor.origin
        return tensor

    def __str__(self) -> str:
        return f"'{self.name}' ({self.type})"


@mutable
class Node:
    """One operator of a graph with the tensors that it reads and writes."""

    op: Any  # ops.base.Op; ir knows only the Operation protocol
    inputs: list[Tensor | None]
    outputs: list[Tensor]
    index: int = -1
    """Position in the loaded module's operator list; -1 for what we added."""
    members: Sequence[Node] | None = None
    """The nodes that this one is computed instead of; None: itself."""
    hint: Hint | None = None
    """What the formula that this node ends stands for."""
    carried: dict[str, Any] = field(default_factory=dict, repr=False)
    """Fields of the file that we keep without interpreting them."""
    inferred: tuple[Any, ...] = field(default=(), repr=False)
    """What the outputs' types were last inferred from, and these."""

    @property
    def originals(self) -> Sequence[Node]:
        return (self,) if self.members is None else self.members

    @property
    def flops(self) -> int:
        """Floating point operations of one run."""
        return int(self.op.flops([known_type(t) for t in self.inputs], [t.type for t in self.outputs]))

    @property
    def nbytes(self) -> int:
        """Every input and output once."""
        return sum(t.type.nbytes for t in (*self.inputs, *self.outputs) if t is not None)

    def __str__(self) -> str:
        name = self.outputs[0].name if self.outputs else ""
        where = f" (operator {self.index})" if self.index >= 0 else ""
        return f"{self.op.name} '{name}'{where}"


@record
class Hint:
    """What a formula stands for, told of the node that ends it."""


@record
class Dropout(Hint):
    """Passes everything in inference; training drops elements with this probability."""

    ratio: float
    seed: int | None


@record
class BatchNorm(Hint):
    """x·γ/σ + (β - γ·μ/σ) by running statistics, σ² = variance + ε; training may normalise by the batch's own."""

    x: Tensor
    gamma: Tensor
    beta: Tensor
    mean: Tensor
    variance: Tensor
    epsilon: Tensor
    momentum: float


@record
class Rounding(Hint):
    """round(x) + zero, kept from low to high; gradients pass it as if nothing were rounded."""

    x: Tensor
    zero: Tensor | None
    low: float
    high: float


def moved(hint: Hint | None, move: Callable[[Tensor], Tensor]) -> Hint | None:
    """The hint about other tensors."""
    if hint is None:
        return None
    values = {each.name: getattr(hint, each.name) for each in fields(hint)}
    tensors: dict[str, Any] = {
        name: move(value) for name, value in values.items() if isinstance(value, Tensor)
    }
    return replace(hint, **tensors)


def known_type(tensor: Tensor | None) -> TensorType | None:
    """A tensor's type together with its value where that is a constant numpy can hold, and none that is first to be made."""
    if tensor is None:
        return None
    type_, buffer, quantization = tensor.type, tensor.buffer, tensor.quantization
    if buffer is None and type_.quantization is quantization:
        return type_
    known = tensor.known
    if known is not None and known[0] is type_ and known[1] is buffer and known[2] is quantization:
        found: TensorType = known[3]
        return found
    value = type_.value
    if value is None and tensor.is_constant and type_.dtype.numpy is not None and tensor.is_at_hand:
        value = tensor.data
    found = TensorType(type_.dtype, type_.shape, value, quantization)
    if buffer is not None and buffer.is_at_hand:
        tensor.known = type_, buffer, quantization, found
    return found


def made_by(tensor: Tensor | None, *names: str) -> Node | None:
    """The node that makes the tensor, if it is one of these operators."""
    node = None if tensor is None else tensor.producer
    return node if node is not None and node.op.name in names else None
