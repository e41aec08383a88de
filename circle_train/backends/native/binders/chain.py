"""Elementwise formulas as programs of the chain kernel: registers, opcodes, broadcasting by strides."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any

import numpy as np

from circle_train.backends.native.engine import abi
from circle_train.backends.native.engine.abi import CHAIN_REGISTERS, MAX_RANK, ChainOp, DataType, Kernel
from circle_train.backends.native.engine.binding import Calls, call, pointer, sizes
from circle_train.ir import DType
from circle_train.ir.tensor_type import Array

DTYPES = {
    np.dtype(np.float32): DataType.F32,
    np.dtype(np.int32): DataType.I32,
    np.dtype(np.bool_): DataType.U8,
    np.dtype(np.uint8): DataType.BITS,
    np.dtype(np.uint16): DataType.BF16,
}


def is_bits(value: Any) -> bool:
    """Whether an array or a tensor of a chain is one bit an element."""
    return value.dtype is DType.UINT8 or value.dtype == np.uint8


class Builder:
    """A formula in static single assignment: values are numbered, inputs first; `assemble` gives them registers."""

    def __init__(self, inputs: int) -> None:
        self.inputs = inputs
        self.operations: list[tuple[ChainOp, tuple[int, ...], float]] = []

    def emit(self, op: ChainOp, *operands: int, imm: float = 0.0) -> int:
        """Append an operation; the number of its value."""
        self.operations.append((op, operands, imm))
        return self.inputs + len(self.operations) - 1

    def constant(self, value: float) -> int:
        return self.emit(ChainOp.CONST, imm=value)

    def assemble(self, results: Sequence[int]) -> tuple[list[abi.ChainOperation], list[int]] | None:
        """Operations with registers, and the registers of the results; None if there are not enough registers."""
        last = {value: len(self.operations) for value in results}
        for position in reversed(range(len(self.operations))):
            for value in self.operations[position][1]:
                last.setdefault(value, position)
        register = {value: value for value in range(self.inputs)}
        free = list(range(CHAIN_REGISTERS - 1, self.inputs - 1, -1))
        made = []
        for position, (op, operands, imm) in enumerate(self.operations):
            sources = [register[value] for value in operands] + [0] * (3 - len(operands))
            value = self.inputs + position
            for operand in set(operands):
                if last[operand] == position:
                    free.append(register[operand])
            if not free:
                return None
            register[value] = free.pop()
            made.append(abi.ChainOperation(int(op), register[value], *sources, imm))
            if value not in last:
                free.append(register[value])
        return made, [register[value] for value in results]


Formula = Callable[..., int]


def chain(formula: Formula, inputs: Sequence[Array], output: Array) -> Calls:
    """The call that computes one formula of the inputs, which broadcast to the output's shape."""
    builder = Builder(len(inputs))
    return assemble(builder, [formula(builder, *range(len(inputs)))], inputs, [output])


def assemble(
    builder: Builder, results: Sequence[int], inputs: Sequence[Array], outputs: Sequence[Array]
) -> Calls:
    """The call for a finished formula; outputs have one shape, the inputs broadcast to it; bits have all of it."""
    if any(a.dtype not in DTYPES for a in (*inputs, *outputs)) or len(inputs) >= CHAIN_REGISTERS:
        return None
    program = builder.assemble(results)
    if program is None:
        return None
    operations, registers = program
    shape, layouts = _walk([*inputs, *outputs])
    if len(shape) > MAX_RANK:
        return None
    given, made = layouts[: len(inputs)], layouts[len(inputs) :]
    sources = (abi.ChainTensor * len(inputs))(*(_tensor(a, s, 0) for a, s in zip(inputs, given, strict=True)))
    targets = (abi.ChainTensor * len(outputs))(
        *(_tensor(a, s, r) for a, s, r in zip(outputs, made, registers, strict=True))
    )
    steps = (abi.ChainOperation * len(operations))(*operations)
    args = abi.ChainArgs(
        sources, targets, steps, sizes(shape), len(shape), len(inputs), len(outputs), len(operations)
    )
    return [call(Kernel.CHAIN, args, sources, targets, steps, *inputs, *outputs)]


def _walk(arrays: Sequence[Array]) -> tuple[list[int], list[list[int]]]:
    """The sizes of the axes that are walked along, and each array's strides along them."""
    same = arrays[0].shape
    if all(a.shape == same and a.flags.c_contiguous and not is_bits(a) for a in arrays):
        return [prod(same)], [[1]] * len(arrays)
    walked = walked_shape(arrays)
    return _merged(walked, [_strides(a, walked) for a in arrays])


def walked_shape(values: Sequence[Any]) -> tuple[int, ...]:
    """The shape that a chain runs over, from its outputs and inputs (arrays or tensors): bits do not show it."""
    shapes = {tuple(value.shape) for value in values if not is_bits(value)}
    return shapes.pop() if len(shapes) == 1 else np.broadcast_shapes(*shapes)


def _strides(array: Array, shape: tuple[int, ...]) -> list[int]:
    """Elements between neighbours along each axis of the shape; 0 where the array is broadcast."""
    if is_bits(array):
        return [0 if n == 1 else prod(shape[axis + 1 :]) for axis, n in enumerate(shape)]
    spread = np.broadcast_to(array, shape)
    return [0 if n == 1 else s // array.itemsize for s, n in zip(spread.strides, shape, strict=True)]


def _merged(shape: tuple[int, ...], layouts: list[list[int]]) -> tuple[list[int], list[list[int]]]:
    """Neighbouring axes as one where that is the same walk for everybody; axes of one element dropped."""
    axes = [i for i, n in enumerate(shape) if n != 1]
    merged: list[int] = []
    made: list[list[int]] = [[] for _ in layouts]
    for i in axes:
        if merged and all(m[-1] == s[i] * shape[i] for m, s in zip(made, layouts, strict=True)):
            merged[-1] *= shape[i]
            for m, s in zip(made, layouts, strict=True):
                m[-1] = s[i]
            continue
        merged.append(shape[i])
        for m, s in zip(made, layouts, strict=True):
            m.append(s[i])
    if not merged:
        return [1], [[1] for _ in layouts]
    return merged, made


def _tensor(array: Array, strides: Sequence[int], register: int) -> abi.ChainTensor:
    return abi.ChainTensor(pointer(array), sizes(strides), int(DTYPES[array.dtype]), register)
