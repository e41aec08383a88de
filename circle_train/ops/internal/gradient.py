"""The nodes that differentiation adds: gradients of ops and of fused activations, zeros, sums into accumulators."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import field
from typing import Any

import numpy as np

from circle_train.ir import Graph, Tensor, TensorType
from circle_train.ir.tensor_type import Array
from circle_train.ops.attributes import Activation
from circle_train.ops.axes import Elementwise, Mixes
from circle_train.ops.base import Op, register
from circle_train.record import record


@register("GRADIENT", internal=True)
@record
class Gradient(Op):
    """Gradient of `of` with respect to its input `wrt`; reads what the gradient method's parameters name."""

    of: Op
    wrt: int
    type: TensorType
    """The input's type, which is the gradient's."""
    counts: tuple[tuple[str, int], ...]
    """The tensors among the method's parameters, in order, and how many node inputs each takes."""
    shapes: dict[str, Any] = field(default_factory=dict, compare=False)
    """The parameters that are known at compile time: shapes and the index of a variadic input."""
    work: int = field(default=0, compare=False)
    """Floating point operations: a gradient costs what its op's forward does."""
    source: int = field(default=-1, compare=False)
    """Index of the operator that this is a gradient of."""

    axes = Mixes("gradients of weights add up what all entries give")

    def infer(self, *inputs: TensorType) -> TensorType:
        return TensorType(self.type.dtype, self.type.shape)

    def forward(self, *inputs: Array | None) -> Array:
        result = self.of.gradient(self.of.input_name(self.wrt), self.arguments(inputs))
        return unbroadcast(result, self.type.shape)

    def arguments(self, inputs: Sequence[Any]) -> dict[str, Any]:
        """The method's keyword arguments: node inputs regrouped by name, and the static ones."""
        return {**self.shapes, **regrouped(self.counts, inputs)}

    @property
    def view_input(self) -> int | None:
        """The gradient of a view is a view of dy."""
        return 0 if self.of.view_of is not None else None

    @property
    def inplace_inputs(self) -> tuple[int, ...]:
        """Elementwise gradients may overwrite dy, which comes first."""
        return (0,) if self.of.inplace and self.counts[0][0] == "dy" else ()

    def flops(self, inputs: Sequence[TensorType | None], outputs: Sequence[TensorType]) -> int:
        return self.work


@register("GRADIENTS", internal=True)
@record
class Gradients(Op):
    """Gradients of `of` with respect to several of its inputs, which one method computes together."""

    of: Op
    wrt: tuple[int, ...]
    types: tuple[TensorType, ...]
    """The inputs' types, which are the gradients'."""
    counts: tuple[tuple[str, int], ...]
    shapes: dict[str, Any] = field(default_factory=dict, compare=False)
    work: int = field(default=0, compare=False)
    source: int = field(default=-1, compare=False)

    axes = Mixes("gradients of weights add up what all entries give")

    def infer(self, *inputs: TensorType) -> tuple[TensorType, ...]:
        return tuple(TensorType(type_.dtype, type_.shape) for type_ in self.types)

    def forward(self, *inputs: Array | None) -> tuple[Array, ...]:
        names = [self.of.input_name(index) for index in self.wrt]
        method = getattr(self.of, self.of.gradients[names[0]].method)
        found = method(**self.shapes, **regrouped(self.counts, inputs))
        first = len(self.of.inputs) - 1
        made = [found[name] for name in names]
        picked = [
            one[i - first] if isinstance(one, list) else one for one, i in zip(made, self.wrt, strict=True)
        ]
        return tuple(unbroadcast(one, t.shape) for one, t in zip(picked, self.types, strict=True))

    def flops(self, inputs: Sequence[TensorType | None], outputs: Sequence[TensorType]) -> int:
        return self.work


MASKS = {
    Activation.NONE: "dy",
    Activation.RELU: "relu_mask(y, dy)",
    Activation.RELU6: "relu6_mask(y, dy)",
    Activation.RELU_N1_TO_1: "relu_n1_to_1_mask(y, dy)",
    Activation.TANH: "tanh_grad(y, dy)",
}


@register("ACTIVATION_GRADIENT", internal=True)
@record
class ActivationGradient(Op):
    """dy times the derivative of a fused activation, from the op's output."""

    kind: Activation
    inplace = ("dy",)
    axes = Elementwise(data="dy")

    @property
    def formula(self) -> str:  # type: ignore[override]
        return MASKS.get(self.kind, "")

    def forward(self, dy: Array, y: Array) -> Array:
        return self.kind.gradient(dy, y)


@register("ZEROS", internal=True)
@record
class Zeros(Op):
    """The gradient of an output that nobody used."""

    type: TensorType

    axes = Mixes("it has no operands")

    def infer(self) -> TensorType:
        return TensorType(self.type.dtype, self.type.shape)

    def forward(self) -> Array:
        return np.zeros(self.type.shape, self.type.dtype.numpy)


@register("ACCUMULATE", internal=True)
@record
class Accumulate(Op):
    """total += g, in the memory of `total`."""

    mutates = True
    axes = Mixes("it writes into an operand")

    def infer(self, total: TensorType, g: TensorType) -> tuple[TensorType, ...]:
        return ()

    def forward(self, total: Array, g: Array) -> tuple[Array, ...]:
        total += g
        return ()


class NotFinite(Exception):
    """The loss or a gradient is not a number; nothing has been updated yet. Whoever runs the step makes an error of it."""

    def __init__(self, found: str, advice: str = "") -> None:
        super().__init__(found)
        self.advice = advice


@register("GUARD_FINITE", internal=True)
@record
class GuardFinite(Op):
    """Stops the run before anything is updated when the loss, or the gradient at a steep place, is NaN or infinite."""

    place: str = ""
    """The operator whose gradient it is; nothing: it is the loss."""
    mutates = True
    axes = Mixes("one entry stops all")

    def infer(self, value: TensorType) -> tuple[TensorType, ...]:
        return ()

    def forward(self, value: Array) -> tuple[Array, ...]:
        if not np.isfinite(value).all():
            raise self.refusal(value)
        return ()

    def refusal(self, value: Array) -> NotFinite:
        """What stopped the run, and what may help."""
        if not self.place:
            return NotFinite(f"the loss is {float(np.sum(value))}")
        return NotFinite(
            f"the loss is finite, but the gradient of {self.place} is not",
            "its slope has no bound there (a root, logarithm or quotient of 0?), add a small number before it",
        )


def influence(graph: Graph, weights: Iterable[Tensor]) -> set[Tensor]:
    """The weights and every float tensor that varies with one of them."""
    influenced = set(weights)
    for node in graph.nodes:
        if not node.op.stops_gradient and not influenced.isdisjoint(node.inputs):
            influenced.update(out for out in node.outputs if out.dtype.is_float)
    return influenced


def regrouped(counts: Sequence[tuple[str, int]], inputs: Sequence[Any]) -> dict[str, Any]:
    """A node's inputs as arguments of a gradient's method."""
    arguments = {}
    position = 0
    for name, count in counts:
        group = inputs[position : position + count]
        arguments[name] = list(group) if name in ("dys", "xs") else group[0]
        position += count
    return arguments


def unbroadcast(array: Array, shape: tuple[int, ...]) -> Array:
    """Sum over the axes along which an input of this shape was broadcast."""
    if array.shape == shape:
        return array
    extra = array.ndim - len(shape)
    axes = (
        *range(extra),
        *(i + extra for i, size in enumerate(shape) if size == 1 and array.shape[i + extra] != 1),
    )
    return np.broadcast_to(array.sum(axis=axes, keepdims=True).reshape(_squeezed(array, axes, extra)), shape)


def _squeezed(array: Array, axes: tuple[int, ...], extra: int) -> tuple[int, ...]:
    return tuple(1 if i in axes else size for i, size in enumerate(array.shape))[extra:]
