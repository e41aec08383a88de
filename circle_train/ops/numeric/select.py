"""Choice by truth values, and where they hold."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from circle_train.errors import ModelError
from circle_train.ir import DType, TensorType
from circle_train.ir.tensor_type import Array
from circle_train.ops.axes import Elementwise, Mixes
from circle_train.ops.base import Example, Op, random, register
from circle_train.ops.checks import booleans, has_rank, same_size
from circle_train.ops.elementwise import broadcast, same_dtype
from circle_train.ops.integers import InIntegers, Scales
from circle_train.ops.versions import Versions, when
from circle_train.record import record


@register("SELECT", "SelectOptions")
class Select(Op):
    """x1 where the condition holds, x2 elsewhere; a vector of conditions chooses rows, a scalar all."""

    axes = Elementwise("condition", data="x1")
    versions = Versions(
        {DType.INT8: 2, DType.UINT32: 4},
        (when(3, lambda node, inputs: any(t.type.rank == 5 for t in inputs)),),
    )

    def infer(self, condition: TensorType, x1: TensorType, x2: TensorType) -> TensorType:
        booleans(self.name, "condition", condition)
        same_dtype(self.name, x1, x2)
        if x1.rank != x2.rank or not all(map(same_size, x1.shape, x2.shape)):
            raise ModelError(
                f"{self.name}: operands are {x1} and {x2}, expected one shape; SELECT_V2 broadcasts"
            )
        if condition.rank not in (0, 1, x1.rank) or not all(map(same_size, condition.shape, x1.shape)):
            raise ModelError(
                f"{self.name}: condition is {condition}, expected the sizes of {x1}, the first, or a scalar"
            )
        return TensorType(x1.dtype, tuple(map(max, x1.shape, x2.shape)))

    def spread(self, condition: Array, rank: int) -> Array:
        """The condition with axes behind it, so that it broadcasts."""
        return condition.reshape(*condition.shape, *[1] * (rank - condition.ndim))

    def forward(self, condition: Array, x1: Array, x2: Array) -> Array:
        return np.where(self.spread(condition, x1.ndim), x1, x2)

    def grad_x1(self, dy: Array, condition: Array) -> Array:
        return dy * self.spread(condition, dy.ndim)

    def grad_x2(self, dy: Array, condition: Array) -> Array:
        return dy * ~self.spread(condition, dy.ndim)

    @classmethod
    def examples(cls) -> Iterable[Example]:
        for shape in ((3, 4), (3,), ()):
            yield Example(cls(), (np.asarray(random(*shape) > 0), random(3, 4, seed=1), random(3, 4, seed=2)))
        yield Example(
            cls(), (np.array([True, False]), np.array([1, 2], np.int32), np.array([3, 4], np.int32))
        )


@register("SELECT_V2", "SelectV2Options")
class SelectV2(Op):
    """x1 where the condition holds, x2 elsewhere; all three broadcast."""

    axes = Elementwise(data="x1")
    in_integers = InIntegers(Scales.ONE, data=("x1", "x2"))
    versions = Versions({DType.UINT32: 2})
    formula = "select(condition, x1, x2)"
    gradient_formulas = {"x1": "mul(dy, condition)", "x2": "mul(dy, logical_not(condition))"}

    def infer(self, condition: TensorType, x1: TensorType, x2: TensorType) -> TensorType:
        booleans(self.name, "condition", condition)
        same_dtype(self.name, x1, x2)
        return TensorType(x1.dtype, broadcast(self.name, condition, x1, x2))

    def forward(self, condition: Array, x1: Array, x2: Array) -> Array:
        return np.where(condition, x1, x2)

    def grad_x1(self, dy: Array, condition: Array) -> Array:
        return dy * condition

    def grad_x2(self, dy: Array, condition: Array) -> Array:
        return dy * ~condition

    @classmethod
    def examples(cls) -> Iterable[Example]:
        for shapes in (
            ((3, 4), (3, 4), (3, 4)),
            ((3, 1), (2, 1, 4), ()),
            ((), (2, 3), (3,)),
            ((4,), (1,), (2, 4)),
        ):
            condition, x1, x2 = (random(*shape, seed=i) for i, shape in enumerate(shapes))
            yield Example(cls(), (np.asarray(condition > 0), x1, x2))
        yield Example(cls(), (np.array([True, False]), np.array([1, 2], np.int32), np.array(9, np.int32)))


@register("WHERE", "WhereOptions")
class Where(Op):
    """The coordinates of all elements that are true or not 0, one row each."""

    stops_gradient = True
    axes = Mixes("how many coordinates there are depends on all elements")
    versions = Versions(features=(when(2, lambda node, inputs: inputs[0].dtype is not DType.BOOL),))

    def infer(self, condition: TensorType) -> TensorType:
        count = -1 if condition.value is None else int(np.count_nonzero(condition.value))
        return TensorType(DType.INT64, (count, condition.rank))

    def forward(self, condition: Array) -> Array:
        return np.argwhere(condition).astype(np.int64)

    @classmethod
    def examples(cls) -> Iterable[Example]:
        yield Example(cls(), (np.asarray(random(3, 4) > 0),))
        yield Example(cls(), (np.array([True, False, True]),))
        yield Example(cls(), (np.array([[[3, 0], [0, 0]]], np.int32),))
        yield Example(cls(), (np.array([0.0, 0.5, -1.0]),))


@register("UNIQUE", "UniqueOptions")
@record
class Unique(Op):
    """The distinct elements in the order in which they first appear, and for each element which one it is."""

    idx_out_type: DType = DType.INT32

    stops_gradient = True
    axes = Mixes("an element is compared with all before it")

    def infer(self, x: TensorType) -> tuple[TensorType, TensorType]:
        has_rank(self.name, "input", x, 1)
        if self.idx_out_type not in (DType.INT32, DType.INT64):
            raise ModelError(
                f"{self.name}: idx_out_type is {self.idx_out_type.name}, expected INT32 or INT64"
            )
        count = -1 if x.value is None else len(np.unique(x.value))
        return TensorType(x.dtype, (count,)), TensorType(self.idx_out_type, x.shape)

    def forward(self, x: Array) -> tuple[Array, Array]:
        _, first, place = np.unique(x, return_index=True, return_inverse=True)
        order = np.argsort(first)
        return x[first[order]], np.argsort(order)[place.reshape(-1)].astype(self.idx_out_type.numpy)

    @classmethod
    def examples(cls) -> Iterable[Example]:
        for dtype in (DType.INT32, DType.INT64):
            yield Example(cls(dtype), (np.array([5, 2, 5, 9, 2, 1], np.int32),))
        yield Example(cls(), (np.array([0.5, -1.0, 0.5]),), constant=(0,))
