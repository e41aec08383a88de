"""Shapes as tensors, tensors made from shapes, and element types."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import field, replace

import numpy as np

from circle_train.errors import DataError, ModelError
from circle_train.ir import DType, TensorType
from circle_train.ir.size import elements, largest
from circle_train.ir.tensor_type import Array
from circle_train.ops.axes import Elementwise, Mixes
from circle_train.ops.base import Example, Op, random, register
from circle_train.ops.checks import length, sizes_in
from circle_train.ops.elementwise import same_dtype
from circle_train.ops.movement import Movement
from circle_train.ops.versions import SHORT, Versions, any_type
from circle_train.record import record


@register("SHAPE", "ShapeOptions")
@record
class Shape(Movement):
    """The sizes of a tensor; known before running where the type is."""

    invents = True
    out_type: DType = DType.INT32

    stops_gradient = True
    axes = Mixes("it tells sizes, not entries")

    def infer(self, x: TensorType) -> TensorType:
        if self.out_type not in (DType.INT32, DType.INT64):
            raise ModelError(f"{self.name}: out_type is {self.out_type.name}, expected INT32 or INT64")
        value = elements(x.shape, self.out_type.numpy) if x.is_static else None
        return TensorType(self.out_type, (x.rank,), value)

    def forward(self, x: Array) -> Array:
        return np.array(x.shape, self.out_type.numpy)

    @classmethod
    def examples(cls) -> Iterable[Example]:
        for out_type in (DType.INT32, DType.INT64):
            yield Example(cls(out_type), (random(2, 3, 4),))
        yield Example(cls(), (random(),))


@register("RANK", "RankOptions")
class Rank(Movement):
    invents = True
    stops_gradient = True
    axes = Mixes("it tells sizes, not entries")

    def infer(self, x: TensorType) -> TensorType:
        return TensorType(DType.INT32, (), np.array(x.rank, np.int32))

    def forward(self, x: Array) -> Array:
        return np.array(x.ndim, np.int32)

    @classmethod
    def examples(cls) -> Iterable[Example]:
        for shape in ((2, 3), (), (1, 1, 1, 1)):
            yield Example(cls(), (random(*shape),))


@register("FILL", "FillOptions")
class Fill(Movement):
    """A tensor of the given sizes full of one value."""

    invents = True
    axes = Mixes("its operands are sizes and a single value")
    versions = Versions(
        {DType.BOOL: 2, DType.STRING: 2, DType.INT8: 3, DType.INT16: 3, DType.FLOAT16: 4}, subject=1
    )

    def infer(self, dims: TensorType, value: TensorType) -> TensorType:
        rank = length(self.name, "dims", dims)
        if value.is_static and value.size != 1:
            raise ModelError(f"{self.name}: value is {value}, expected a scalar")
        if dims.value is None:
            return TensorType(value.dtype, (-1,) * rank)
        sizes = tuple(sizes_in(dims.value))
        if min(sizes, default=0) < 0:
            raise ModelError(f"{self.name}: dims are {list(sizes)}, expected sizes of at least 0")
        return TensorType(value.dtype, sizes)

    def forward(self, dims: Array, value: Array) -> Array:
        return np.full([int(n) for n in dims], value.reshape(()), value.dtype)

    def grad_value(self, dy: Array, value_shape: tuple[int, ...]) -> Array:
        return dy.sum().reshape(value_shape)

    @classmethod
    def examples(cls) -> Iterable[Example]:
        for dims in ((2, 3), (4,), ()):
            yield Example(cls(), (np.array(dims, np.int32), random()))
        yield Example(cls(), (np.array([2, 2], np.int64), np.array(7, np.int32)))


@register("RANGE", "RangeOptions")
class Range(Op):
    """start, start + delta, … as long as it is before limit."""

    stops_gradient = True
    axes = Mixes("its operands are bounds, not entries")
    versions = Versions({DType.INT64: 2})
    litert_lacks = SHORT

    def infer(self, start: TensorType, limit: TensorType, delta: TensorType) -> TensorType:
        same_dtype(self.name, start, limit, delta)
        for name, operand in (("start", start), ("limit", limit), ("delta", delta)):
            if operand.rank:
                raise ModelError(f"{self.name}: {name} is {operand}, expected a scalar")
        if start.value is None or limit.value is None or delta.value is None:
            return TensorType(start.dtype, (-1,))
        if not delta.value:
            raise ModelError(f"{self.name}: delta is 0, expected a step other than 0")
        return TensorType(start.dtype, (self.count(start.value, limit.value, delta.value),))

    @staticmethod
    def count(start: Array, limit: Array, delta: Array) -> int:
        if all(value.dtype.kind == "f" for value in (start, limit, delta)):
            return max(int(np.ceil((limit - start) / delta)), 0)
        first, end, step = (sizes_in(value)[0] for value in (start, limit, delta))
        return largest(-((first - end) // step), 0)

    def forward(self, start: Array, limit: Array, delta: Array) -> Array:
        if not delta:
            raise DataError(f"{self.name}: delta is 0, expected a step other than 0")
        steps = np.arange(self.count(start, limit, delta)).astype(start.dtype)
        return start + steps * delta

    @classmethod
    def examples(cls) -> Iterable[Example]:
        for numbers in ((0, 5, 1), (2, 9, 3), (5, -2, -2), (3, 3, 1), (4, 0, 1)):
            yield Example(cls(), tuple(np.array(n, np.int32) for n in numbers))
        for bounds in ((0.0, 1.0, 0.25), (2.0, -1.0, -0.75)):
            yield Example(cls(), tuple(np.array(n) for n in bounds), constant=(0, 1, 2))


@register("ZEROS_LIKE", "ZerosLikeOptions")
class ZerosLike(Movement):
    invents = True
    stops_gradient = True
    axes = Elementwise()

    def forward(self, x: Array) -> Array:
        return np.zeros_like(x)

    @classmethod
    def examples(cls) -> Iterable[Example]:
        yield Example(cls(), (random(2, 3),))
        yield Example(cls(), (np.array([1, 2], np.int64),))


@register("CAST", "CastOptions")
@record
class Cast(Op):
    """Another element type; floats lose their fraction on the way to integers."""

    in_data_type: DType = DType.FLOAT32
    out_data_type: DType = DType.FLOAT32
    tensor_types: tuple[DType, DType] | None = field(default=None, compare=False)
    """What the file's tensors are: converters leave the options out, and LiteRT never reads them."""

    axes = Elementwise()
    formula = "copy(x)"
    gradient_formulas = {"x": "copy(dy)"}
    versions = Versions(
        features=(
            any_type(
                {
                    DType.UINT32: 2,
                    DType.INT8: 3,
                    DType.UINT16: 4,
                    DType.FLOAT16: 5,
                    DType.FLOAT64: 5,
                    DType.BFLOAT16: 7,
                }
            ),
        )
    )

    def with_types(self, inputs: Sequence[TensorType | None], outputs: Sequence[TensorType]) -> Cast:
        if len(inputs) != 1 or inputs[0] is None or len(outputs) != 1:
            return self
        return replace(self, tensor_types=(inputs[0].dtype, outputs[0].dtype))

    @property
    def types(self) -> tuple[DType, DType]:
        """Element types before and after."""
        return self.tensor_types or (self.in_data_type, self.out_data_type)

    def infer(self, x: TensorType) -> TensorType:
        if self.types[1].numpy is None:
            raise ModelError(
                f"{self.name}: the result is to be {self.types[1].name}, expected a type that numpy has"
            )
        return TensorType(self.types[1], x.shape)

    def forward(self, x: Array) -> Array:
        return x.astype(self.types[1].numpy)

    def grad_x(self, dy: Array) -> Array:
        return dy.astype(self.types[0].numpy)

    @classmethod
    def examples(cls) -> Iterable[Example]:
        yield Example(cls(DType.FLOAT64, DType.FLOAT64), (random(2, 3),))
        yield Example(
            cls(DType.FLOAT32, DType.INT32), (np.array([-1.7, 1.7, 0.2, 250.9]),), differentiable=False
        )
        yield Example(cls(DType.FLOAT32, DType.BOOL), (np.array([-1.5, 0.0, 0.5]),), differentiable=False)
        yield Example(
            cls(tensor_types=(DType.FLOAT32, DType.INT64)), (np.array([-1.7, 9.5]),), differentiable=False
        )
        yield Example(cls(DType.INT32, DType.FLOAT32), (np.array([[3, -4]], np.int32),))
        yield Example(cls(DType.INT64, DType.INT32), (np.array([3, -4], np.int64),))
        yield Example(cls(DType.BOOL, DType.FLOAT32), (np.array([True, False]),))
