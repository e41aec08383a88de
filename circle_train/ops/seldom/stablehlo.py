"""StableHLO's names for functions that have others; operands are of one shape."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from circle_train.errors import ModelError
from circle_train.ir import DType, Graph, Tensor, TensorType
from circle_train.ir.tensor_type import Array
from circle_train.ops.axes import Elementwise
from circle_train.ops.base import Example, Op, random, register
from circle_train.ops.checks import same_size
from circle_train.ops.elementwise import OfFloats
from circle_train.ops.numeric.arithmetic import Add, Maximum, Minimum, Mul


class Alike(Op):
    """Base: of two tensors of one type, element by element."""

    axes = Elementwise()

    def infer(self, x1: TensorType, x2: TensorType) -> TensorType:
        is_alike = x1.dtype is x2.dtype and x1.rank == x2.rank
        if not is_alike or not all(same_size(a, b) for a, b in zip(x1.shape, x2.shape, strict=True)):
            raise ModelError(f"{self.name}: operands are {x1} and {x2}, expected two of one type")
        return TensorType(x1.dtype, tuple(map(max, x1.shape, x2.shape)))

    @classmethod
    def examples(cls) -> Iterable[Example]:
        yield Example(cls(), (random(3, 4), random(3, 4, seed=1)))
        yield Example(cls(), (np.array([3, -4], np.int32), np.array([5, 6], np.int32)))


TWINS: dict[str, type[Add | Maximum | Minimum | Mul]] = {
    "STABLEHLO_ADD": Add,
    "STABLEHLO_MAXIMUM": Maximum,
    "STABLEHLO_MINIMUM": Minimum,
    "STABLEHLO_MULTIPLY": Mul,
}
"""What computes the same as an operator of Circle's own, but for operands of other shapes."""


def twin_of(ours: type[Add | Maximum | Minimum | Mul]) -> type[Alike]:
    """That operator's arithmetic and gradients, of operands of one type."""

    class Twin(Alike):
        identity_gradient = ours.identity_gradient
        formula, gradient_formulas = ours.formula, ours.gradient_formulas
        forward, grad_x1, grad_x2 = ours.forward, ours.grad_x1, ours.grad_x2

    Twin.__name__ = Twin.__qualname__ = f"Stablehlo{ours.__name__}"
    return Twin


for _name, _ours in TWINS.items():
    register(_name)(twin_of(_ours))


def only_operator(graph: Graph) -> str:
    """What combines a graph's two numbers, by Circle's own name; empty where that is more, or other, than one operator."""
    maker = graph.outputs[0].producer if len(graph.outputs) == 1 else None
    if maker is None or len(graph.nodes) != 1 or set(maker.inputs) != set(graph.inputs):
        return ""
    return TWINS[maker.op.name].name if maker.op.name in TWINS else maker.op.name


def combining(op: Op | None, dtype: DType = DType.FLOAT32) -> Graph:
    """A graph of two numbers: the operator's result, or the second."""
    graph = Graph("combining", [Tensor(name, TensorType(dtype, ())) for name in ("old", "new")])
    graph.outputs = [graph.inputs[1] if op is None else graph.emit(op, *graph.inputs)]
    return graph


@register("STABLEHLO_CBRT")
class StablehloCbrt(OfFloats):
    steep = ("x",)

    def forward(self, x: Array) -> Array:
        return np.cbrt(x)

    def grad_x(self, dy: Array, y: Array) -> Array:
        return dy / (3 * y * y)


@register("STABLEHLO_AND")
class StablehloAnd(Alike):
    """Bit by bit."""

    stops_gradient = True

    def infer(self, x1: TensorType, x2: TensorType) -> TensorType:
        if x1.dtype.numpy is None or x1.dtype.numpy.kind not in "bi":
            raise ModelError(f"{self.name}: x1 is {x1}, expected truth values or integers")
        return super().infer(x1, x2)

    def forward(self, x1: Array, x2: Array) -> Array:
        return np.bitwise_and(x1, x2)

    @classmethod
    def examples(cls) -> Iterable[Example]:
        for dtype in (np.bool_, np.int8, np.int32, np.int64):
            yield Example(cls(), (np.array([1, 0, 6, 7]).astype(dtype), np.array([1, 3, 3, 0]).astype(dtype)))


@register("STABLEHLO_SHIFT_LEFT", "StablehloShiftLeftOptions")
class StablehloShiftLeft(Alike):
    """Bits move up; nothing is left of numbers that move further than they are long."""

    stops_gradient = True

    def infer(self, x1: TensorType, x2: TensorType) -> TensorType:
        if x1.dtype not in (DType.INT8, DType.INT16, DType.INT32):
            raise ModelError(f"{self.name}: x1 is {x1}, expected integers of up to 32 bits")
        return super().infer(x1, x2)

    def forward(self, x1: Array, x2: Array) -> Array:
        return np.left_shift(x1, x2)

    @classmethod
    def examples(cls) -> Iterable[Example]:
        for dtype in (np.int8, np.int16, np.int32):
            yield Example(cls(), (np.array([1, -3, 5], dtype), np.array([0, 2, 4], dtype)))
