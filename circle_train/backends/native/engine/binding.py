"""Which kernels compute which node: binders by operator class, by gradient, and by fused kernel."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import numpy as np

from circle_train.backends.native.engine import abi
from circle_train.backends.native.engine.abi import Bf16, IntType, Kernel
from circle_train.backends.native.engine.step import Call
from circle_train.ir import Node
from circle_train.ir.coded import Coded
from circle_train.ir.tensor_type import Array
from circle_train.ops.attributes import Activation
from circle_train.ops.base import Op
from circle_train.ops.internal.bfloat16 import PRODUCTS
from circle_train.ops.internal.fused import Fused
from circle_train.ops.internal.gradient import Gradient
from circle_train.ops.internal.integers.quantized import Quantized
from circle_train.ops.layers.conv import Conv2D, DepthwiseConv2D
from circle_train.ops.layers.linear import FullyConnected

Calls = Sequence[Call] | None
"""None: this node (type, layout, option) is not covered."""
Values = Sequence[Any]
Binder = Callable[[Any, Values, Sequence[Array]], Calls]
GradientBinder = Callable[[Gradient, dict[str, Any], Array], Calls]
FusedBinder = Callable[[Fused, dict[str, Any], Sequence[Array]], Calls]
AnyBinder = TypeVar("AnyBinder", bound=Callable[..., Calls])

OPS: dict[type[Op], Binder] = {}
GRADIENTS: dict[tuple[type[Op], str], GradientBinder] = {}
FUSED: dict[str, FusedBinder] = {}


def binds(*ops: type[Op]) -> Callable[[AnyBinder], AnyBinder]:
    """binder(op, inputs, outputs) for these operators."""

    def add(binder: AnyBinder) -> AnyBinder:
        OPS.update(dict.fromkeys(ops, binder))
        return binder

    return add


def binds_gradient(wrt: str, *ops: type[Op]) -> Callable[[AnyBinder], AnyBinder]:
    """binder(gradient, arrays by the names of the gradient's parameters, output)."""

    def add(binder: AnyBinder) -> AnyBinder:
        GRADIENTS.update({(op, wrt): binder for op in ops})
        return binder

    return add


def binds_fused(kernel: str) -> Callable[[AnyBinder], AnyBinder]:
    """binder(fused, arrays by role, outputs)."""

    def add(binder: AnyBinder) -> AnyBinder:
        FUSED[kernel] = binder
        return binder

    return add


def bind(node: Node, inputs: Values, outputs: Sequence[Array]) -> Calls:
    """The calls that compute the node, or None: the reference runs it."""
    op = node.op
    if isinstance(op, Fused):
        binder = FUSED.get(op.kernel)
        return binder(op, op.by_role(inputs), outputs) if binder else None
    if not _layout_is_known(node):
        return None
    if isinstance(op, Gradient):
        of = GRADIENTS.get((type(op.of), op.of.input_name(op.wrt)))
        return of(op, op.arguments(inputs), outputs[0]) if of else None
    simple = OPS.get(type(op))
    return simple(op, op.pad(inputs), outputs) if simple else None


def _layout_is_known(node: Node) -> bool:
    """Whether all is constant that says where elements go: kernels are given strides."""
    op = node.op
    if isinstance(op, Gradient):
        static = op.of.static_inputs
        names = [name for name, count in op.counts for _ in range(count)] if static else []
    elif isinstance(op, Quantized):
        static = _packed_inputs(op.of)
        names = [op.of.input_name(i) for i in range(len(node.inputs))] if static else []
    else:
        static = op.static_inputs
        names = [op.input_name(i) for i in range(len(node.inputs))] if static else []
    return not static or all(
        t is None or name not in static or t.is_constant for name, t in zip(names, node.inputs, strict=True)
    )


def _packed_inputs(op: Op) -> tuple[str, ...]:
    """What kernels of integers are made for: also the weights."""
    return (*op.static_inputs, *op.parameters) if isinstance(op, PACKED) else op.static_inputs


def pointer(array: Array | None) -> int | None:
    """The address of an array; NULL where there is none."""
    return None if array is None else int(array.__array_interface__["data"][0])


def floats(*arrays: Array | None) -> bool:
    """Whether every array given is contiguous float32."""
    return all(a is None or (a.dtype == np.float32 and a.flags.c_contiguous) for a in arrays)


def weights_at(w: Array | Coded, axis: int) -> tuple[int | None, abi.IntWidenArgs] | None:
    """Where floats lie, or integers whose scales, if there is one for each output, lie along this axis; None: neither."""
    if not isinstance(w, Coded):
        return (pointer(w), abi.IntWidenArgs()) if floats(w) else None
    if w.scale.size > 1 and w.axis % len(w.shape) != axis:
        return None
    kind = IntType.INT8 if w.dtype == np.int8 else IntType.UINT8
    scales = pointer(w.scale), pointer(w.zero)
    return None, abi.IntWidenArgs(pointer(w.stored), None, *scales, *w.layout, kind)


ROUNDED = tuple(PRODUCTS.values())
PACKED = (Conv2D, DepthwiseConv2D, FullyConnected)


def bf16_flags(op: Op, **roles: Array | None) -> Bf16 | None:
    """What of a product is rounded to bfloat16, and which of its tensors lie so; None where no kernel reads them."""
    flags = Bf16.OPERANDS if isinstance(op, ROUNDED) else Bf16(0)
    for role, array in roles.items():
        if array is not None and array.dtype == np.uint16:
            flags |= Bf16[role.upper()]
    return None if flags and not isinstance(op, (*ROUNDED, DepthwiseConv2D)) else flags


def storable(*arrays: Array | None) -> bool:
    """Whether every array given is contiguous float32 or bfloat16."""
    return all(a is None or (a.dtype in (np.float32, np.uint16) and a.flags.c_contiguous) for a in arrays)


def call(kernel: Kernel, args: ctypes.Structure, *keep: Any) -> Call:
    """A kernel with its arguments; what they point to is kept."""
    assert type(args) is abi.ARGS[kernel], f"{kernel.name} takes {abi.ARGS[kernel].__name__}"
    return Call(kernel, args, keep)


def sizes(values: Sequence[int]) -> Any:
    """int64_t[CT_MAX_RANK]."""
    return (ctypes.c_int64 * abi.MAX_RANK)(*values)


def supported(activation: Activation) -> bool:
    """Kernels know every fused activation but SIGN_BIT."""
    return activation is not Activation.SIGN_BIT


def copied(source: Array, target: Array) -> list[Call]:
    """A plain copy, nothing where both are the same memory."""
    if pointer(source) == pointer(target):
        return []
    args = abi.CopyArgs(
        pointer(source), pointer(target), sizes([source.size]), sizes([1]), sizes([1]), 1, source.itemsize
    )
    return [call(Kernel.COPY, args, source, target)]
