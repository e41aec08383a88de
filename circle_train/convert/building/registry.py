"""Which function converts which ONNX operator from which opset on, and what such a function is given."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from circle_train.convert.building.builder import Builder
from circle_train.convert.building.refusal import Refusal
from circle_train.ir import DType, Tensor, TensorType
from circle_train.ir.tensor_type import Array
from circle_train.record import mutable

Result = Tensor | Sequence[Tensor]
Handler = Callable[["Call"], Result]
HANDLERS: dict[tuple[str, str], list[tuple[int, Handler]]] = {}
"""By domain and operator: (first opset, handler), rising."""


@mutable
class Bundle(Tensor):
    """A sequence of tensors, in the place of one."""

    parts: Sequence[Tensor] = ()

    @classmethod
    def of(cls, parts: Sequence[Tensor]) -> Bundle:
        if any(isinstance(part, Bundle) for part in parts):
            raise Refusal("it makes a sequence that holds sequences, which Circle has not")
        type_ = parts[0].type if parts else TensorType(DType.FLOAT32, (0,))
        return cls("sequence", type_, parts=parts)


@mutable
class Call:
    """One ONNX node: its inputs as Circle tensors, its attributes as Python values."""

    op: str
    b: Builder
    inputs: Sequence[Tensor | None]
    attributes: dict[str, Any]
    opset: int
    declared: Sequence[tuple[int, ...] | None] = ()
    """The outputs' shapes as far as the model states them as numbers."""
    output_count: int = 1
    wanted: Sequence[bool] = ()
    """Which outputs anything reads."""
    branch: Callable[..., list[Tensor]] | None = None
    """Asks the walk for the outputs of a graph attribute, given its inputs by name."""

    def __getitem__(self, index: int) -> Tensor:
        """A required input."""
        tensor = self.inputs[index] if index < len(self.inputs) else None
        if tensor is None:
            raise Refusal(f"it lacks its input {index}")
        return tensor

    def optional(self, index: int) -> Tensor | None:
        return self.inputs[index] if index < len(self.inputs) else None

    def attr(self, name: str, default: Any = None) -> Any:
        return self.attributes.get(name, default)

    def required(self, name: str) -> Any:
        if name not in self.attributes:
            raise Refusal(f"it lacks its attribute '{name}'")
        return self.attributes[name]

    def shape(self, index: int = 0) -> tuple[int, ...]:
        return self.b.shape(self[index])

    def rank(self, index: int = 0) -> int:
        return self[index].type.rank

    def axis(self, default: int = 0, name: str = "axis", rank: int | None = None) -> int:
        """An axis attribute, counted from the front."""
        return front(int(self.attr(name, default)), self.rank() if rank is None else rank)

    def value(self, index: int, what: str) -> Array:
        """An input whose elements must be known before running."""
        value = self.b.value(self[index])
        if value is None:
            raise Refusal(f"its input '{what}' is computed while running, a constant is needed")
        return value

    def sizes(self, index: int, what: str) -> tuple[int, ...]:
        """Like `value`, for a vector of integers, of which some may be symbolic."""
        sizes = self.b.sizes(self[index])
        if sizes is None:
            raise Refusal(f"its input '{what}' is computed while running, a constant is needed")
        return sizes

    def uses(self, index: int) -> bool:
        """Whether anything reads the index-th output."""
        return index < len(self.wanted) and self.wanted[index]

    def declared_shape(self, index: int = 0) -> tuple[int, ...] | None:
        return self.declared[index] if index < len(self.declared) else None

    @property
    def dtype(self) -> DType:
        return self[0].dtype


def front(axis: int, rank: int) -> int:
    """The axis counted from the front."""
    if not -rank <= axis < max(rank, 1):
        raise Refusal(f"axis {axis} does not exist in a tensor of rank {rank}")
    return axis % max(rank, 1)


def handles(*operators: str, since: int = 1, domain: str = "") -> Callable[[Handler], Handler]:
    """Register a function for ONNX operators from an opset on."""

    def add(handler: Handler) -> Handler:
        for name in operators:
            versions = HANDLERS.setdefault((domain, name), [])
            if any(first == since for first, _ in versions):
                raise TypeError(f"two functions convert {name} from opset {since}")
            versions.append((since, handler))
            versions.sort(key=lambda version: version[0])
        return handler

    return add


def handler_for(domain: str, name: str, opset: int) -> Handler | None:
    """The newest handler that is not newer than the opset."""
    found = None
    for since, handler in HANDLERS.get((domain, name), ()):
        if since <= opset:
            found = handler
    return found
