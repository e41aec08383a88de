"""What handlers write graphs with: the emitter, questions about shapes and values, sizes as tensors, and rearrangements."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from circle_train.convert.building.emitter import Emitter, make
from circle_train.convert.building.refusal import Refusal
from circle_train.ir import DType, Tensor, TensorType
from circle_train.ir.size import Number, Size, elements, is_open
from circle_train.ir.tensor_type import Array


class Builder(Emitter):
    """A graph under construction."""

    def successor(self) -> Builder:
        """An empty graph over the same symbols, for emitting this one's nodes anew."""
        made = Builder()
        made.examples, made.open, made.lineage = self.examples, self.open, self.lineage
        made.stored, made.widened, made.four_bits = self.stored, self.widened, self.four_bits
        made._parameters, made._numbers = self._parameters, self._numbers
        made.derivations = self.derivations
        return made

    # What is known of tensors

    def shape(self, tensor: Tensor) -> tuple[int, ...]:
        """The tensor's shape; open entries are Sizes. Sizes known only at run time are refused."""
        if not tensor.type.is_static:
            raise Refusal("the shape of its input is known only while running")
        if tensor not in self.open:
            return tensor.shape
        shape: Any = [
            size.read_from("size", tensor, axis) if isinstance(size, Size) else size
            for axis, size in enumerate(self.open[tensor].shape)
        ]
        return tuple(shape)

    def partial_shape(self, tensor: Tensor) -> tuple[int, ...]:
        """The same, but sizes known only at run time are -1."""
        return self.shape(tensor) if tensor.type.is_static else tensor.shape

    def value(self, tensor: Tensor | None) -> Array | None:
        """The elements, where they are known and depend on no symbol."""
        known = self.known(tensor)
        return None if known is None or known in self.open else known.data

    def sizes(self, tensor: Tensor | None) -> tuple[int, ...] | None:
        """A known vector of integers; entries that depend on a symbol are Sizes."""
        tensor = self.known(tensor)
        if tensor is None or tensor.type.rank > 1:
            return None
        if tensor not in self.open:
            return tuple(int(n) for n in tensor.data.reshape(-1).tolist())
        type_ = self.open[tensor]
        if type_.value is None or is_open(type_.shape):
            return None
        values: Any = [
            n.read_from("element", tensor, index) if isinstance(n, Size) else int(n)
            for index, n in enumerate(type_.value.reshape(-1).tolist())
        ]
        return tuple(values)

    def numbers(self, count: int, dtype: Any = np.int32) -> Tensor:
        """0, 1, 2, … below `count`."""
        if not isinstance(count, Size):
            return self.constant(np.arange(count), dtype)
        start, limit, step = (self.reshape(self.integers([n], dtype), ()) for n in (0, count, 1))
        return self("RANGE", start, limit, step)

    # Sizes as tensors

    def integers(self, values: Sequence[Number], dtype: Any = np.int32) -> Tensor:
        """A vector of sizes, axes or indices; open entries stay computable."""
        tensor = self.constant(np.array([self.example(value) for value in values], dtype))
        if is_open(values):
            self.open[tensor] = TensorType(tensor.dtype, tensor.shape, elements(list(values), dtype))
            parts: list[Tensor | None] = [self._scalar(value, dtype) for value in values]
            self.recipes[tensor] = (make("PACK", {"values_count": len(parts), "axis": 0}), parts, 0)
        return tensor

    def _scalar(self, value: Number, dtype: Any) -> Tensor:
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
        if name == "symbol":
            return self._scalar(self._input_size(value), dtype)
        return self(name, self._scalar(operands[0], dtype), self._scalar(operands[1], dtype))

    def _input_size(self, value: Size) -> Size:
        """A symbol as the size of an input that has it."""
        for tensor in self.graph.inputs:
            for axis, size in enumerate(self.open[tensor].shape if tensor in self.open else ()):
                if isinstance(size, Size) and size.terms == value.terms:
                    return size.read_from("size", tensor, axis)
        raise Refusal(f"no input has the size {value}")

    # Rearrangements

    def reshape(self, tensor: Tensor, dims: Sequence[int]) -> Tensor:
        """RESHAPE; one symbolic size is written as -1, several are avoided where only axes of size 1 move."""
        dims = tuple(dims)
        if (
            sum(isinstance(dim, Size) for dim in dims) > 1
            and (made := self._only_ones(tensor, dims)) is not None
        ):
            return made
        if dims == self.shape(tensor) and not is_open(dims):
            return tensor
        symbolic = [axis for axis, dim in enumerate(dims) if isinstance(dim, Size)]
        if len(symbolic) == 1 and 0 not in dims:
            dims = tuple(-1 if isinstance(dim, Size) else dim for dim in dims)
        return self(
            "RESHAPE",
            tensor,
            self.integers(dims),
            new_shape=tuple(-1 if isinstance(d, Size) else int(d) for d in dims),
        )

    def can_reshape(self, tensor: Tensor, dims: Sequence[int]) -> bool:
        """Whether `reshape` needs no sizes computed while running."""
        return (
            sum(isinstance(dim, Size) for dim in dims) < 2 or self._ones_that_move(tensor, dims) is not None
        )

    def _only_ones(self, tensor: Tensor, dims: Sequence[int]) -> Tensor | None:
        """SQUEEZE and EXPAND_DIMS, if the other sizes stay."""
        moving = self._ones_that_move(tensor, dims)
        if moving is None:
            return None
        gone, new = moving
        if gone:
            tensor = self("SQUEEZE", tensor, squeeze_dims=tuple(gone))
        for axis in new:
            tensor = self("EXPAND_DIMS", tensor, self.constant(axis, np.int32))
        return tensor

    def _ones_that_move(self, tensor: Tensor, dims: Sequence[int]) -> tuple[list[int], list[int]] | None:
        """Axes of size 1 before and after, if all others are the same."""
        before, after = self.shape(tensor), tuple(dims)
        ones = [[axis for axis, n in enumerate(shape) if n == 1] for shape in (before, after)]
        rest = [[n for n in shape if n != 1] for shape in (before, after)]
        return (ones[0], ones[1]) if rest[0] == rest[1] else None

    def transpose(self, tensor: Tensor, permutation: Sequence[int]) -> Tensor:
        if list(permutation) == list(range(tensor.type.rank)):
            return tensor
        return self("TRANSPOSE", tensor, self.integers(permutation))

    def channels_last(self, tensor: Tensor) -> Tensor:
        """Batch × channels × spatial to batch × spatial × channels."""
        return self.transpose(tensor, [0, *range(2, tensor.type.rank), 1])

    def channels_first(self, tensor: Tensor) -> Tensor:
        rank = tensor.type.rank
        return self.transpose(tensor, [0, rank - 1, *range(1, rank - 1)])

    def refine(self, tensor: Tensor, shape: tuple[int, ...] | None) -> Tensor:
        """Believe a declared shape where the operators cannot tell before running."""
        if shape is not None and not tensor.type.is_static and len(shape) == tensor.type.rank:
            tensor.type = TensorType(tensor.dtype, shape)
        return tensor
