"""How operators treat axes: declared in their classes, asked by whoever cuts, turns or grows tensors.

Three questions to a node, whose types are known:

* `kept(node, index, axis)`: along which axis of the outputs the entries of that input's axis are treated one by one. Axes of
  several inputs that come out as the same one belong together; inputs without such an axis take part in every entry.
* `permuted(node, orders)`: how the node is computed when its operands lie in these orders (see ops.orders).
* `resized(node, index, axis, size)`: the constants that change when this axis grows to `size`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import field
from typing import Any, ClassVar

import numpy as np

from circle_train.ir import Node, Tensor, TensorType
from circle_train.ir.tensor_type import Array
from circle_train.ops.orders import Order, identity, without
from circle_train.record import record

Lying = Sequence[Order | None]
"""For each input how it lies; None: absent, or a constant, which can be had in any order."""
Types = Callable[[Tensor], Sequence[TensorType]]
"""A tensor's type in every case that the answer is to hold for."""


@record
class Permuted:
    """How a node is computed on operands that lie otherwise."""

    op: Any
    """None: nothing is computed; the output is the operand, under other sizes."""
    operands: tuple[Order | Array | None, ...]
    """For each input the order in which it is wanted, or a constant in its place. A longer order than the operand has axes
    wants axes of size 1 before them."""
    orders: tuple[Order, ...]
    """In which the outputs lie."""


def own_type(tensor: Tensor) -> Sequence[TensorType]:
    return [tensor.type]


@record
class Axes:
    """What an operator says of its axes."""

    data: str = field(default="x", kw_only=True)
    """The input that they are counted on."""
    picks: ClassVar[bool] = False
    """Whether the output may be a part of the data, so that it may miss what grew."""

    @property
    def operands(self) -> tuple[str, ...]:
        """The inputs that say where elements go."""
        return ()

    def kept(self, node: Node, index: int, axis: int) -> int | None:
        return None

    def permuted(self, node: Node, orders: Lying, types: Types = own_type) -> Permuted | None:
        return None

    def resized(self, node: Node, index: int, axis: int, size: int) -> dict[int, Array]:
        return {}

    def is_data(self, node: Node, index: int) -> bool:
        return bool(node.op.input_name(index) == self.data)

    def source(self, node: Node) -> Tensor:
        """The tensor that the axes are counted on."""
        tensor = node.inputs[node.op.input_index(self.data)]
        assert tensor is not None
        return tensor

    def turned(
        self, node: Node, order: Order, out: Sequence[int], op: Any = None, **constants: Array
    ) -> Permuted:
        """The op on data in this order and these constants; all outputs in the order `out`."""
        own: dict[str, Order | Array] = {self.data: order, **constants}
        plain = [None if tensor is None else identity(tensor.type.rank) for tensor in node.inputs]
        operands = tuple(own.get(node.op.input_name(i), lies) for i, lies in enumerate(plain))
        return Permuted(op or node.op, operands, (tuple(out),) * len(node.outputs))

    def lies(self, node: Node, orders: Lying) -> Order | None:
        """The order of the data."""
        return orders[node.op.input_index(self.data)]


@record
class Mixes(Axes):
    """No entries of any axis are treated one by one."""

    why: str = ""


@record
class Elementwise(Axes):
    """Element by element; operands broadcast, the one called `leading` from the first axis on."""

    leading: str = ""

    def kept(self, node: Node, index: int, axis: int) -> int | None:
        shape, out = shape_of(node, index), node.outputs[0].shape
        at = axis if node.op.input_name(index) == self.leading else axis + len(out) - len(shape)
        return at if shape[axis] == out[at] else None

    def permuted(self, node: Node, orders: Lying, types: Types = own_type) -> Permuted | None:
        order = heaviest(node, orders)
        if order == identity(len(order)) or self.leading:
            return None
        return Permuted(node.op, tuple(_broadcast(t, order) for t in node.inputs), (order,))


@record
class LastAxis(Axes):
    """Row by row, a row being the last axis; what is `beside` has an entry, or a row, for every row."""

    beside: tuple[str, ...] = ()

    def kept(self, node: Node, index: int, axis: int) -> int | None:
        if node.op.input_name(index) not in (self.data, *self.beside):
            return None
        rows, out = self.source(node).shape[:-1], node.outputs[0].shape
        return axis if axis < len(rows) and rows[: axis + 1] == out[: axis + 1] else None

    def permuted(self, node: Node, orders: Lying, types: Types = own_type) -> Permuted | None:
        order = self.lies(node, orders)
        if self.beside or order is None or order[-1:] != (len(order) - 1,):
            return None
        return self.turned(node, order, order) if node.outputs[0].type.rank == len(order) else None


@record
class Image(Axes):
    """Sample by sample, samples being the first axis; the operand `sizes` may hold how many there are."""

    beside: tuple[str, ...] = ()
    sizes: str = ""

    def kept(self, node: Node, index: int, axis: int) -> int | None:
        has_samples = node.op.input_name(index) in (self.data, *self.beside)
        return (
            0 if has_samples and axis == 0 and shape_of(node, index)[0] == node.outputs[0].shape[0] else None
        )

    def resized(self, node: Node, index: int, axis: int, size: int) -> dict[int, Array]:
        if not self.sizes or self.kept(node, index, axis) is None:
            return {}
        return with_size(node, self.sizes, 0, shape_of(node, index)[0], size)


@record
class Steps(Axes):
    """Step by step along time, every sequence by itself; `states` have a row for every sequence."""

    states: tuple[str, ...] = ()

    def kept(self, node: Node, index: int, axis: int) -> int | None:
        x, out = self.source(node), node.outputs[0].shape
        batch = 1 if node.op.is_time_major else 0
        is_state = node.op.input_name(index).split("_")[-1] in self.states and axis == 0
        if not is_state and not (self.is_data(node, index) and axis == batch):
            return None
        at = batch if len(out) == x.type.rank else 0
        return at if shape_of(node, index)[axis] == out[at] else None


@record
class Matrix(Axes):
    """Products of the last two axes; `is_layer`: rows of any rank meet one matrix, given transposed, and a bias."""

    is_layer: bool = False

    def kept(self, node: Node, index: int, axis: int) -> int | None:
        shape, out = shape_of(node, index), node.outputs[0].shape
        if self.is_layer:
            return self._of_layer(shape, out, index, axis)
        at, columns = axis - len(shape), -1
        if at < -2:
            return at + len(out) if shape[axis] == out[at] else None
        adjoint = node.op.adjoint_rhs if index else node.op.adjoint_lhs
        summed = columns if bool(index) == adjoint else -2
        return None if at == summed else len(out) - (1 if index else 2)

    @staticmethod
    def _of_layer(shape: Sequence[int], out: Sequence[int], index: int, axis: int) -> int | None:
        if index:
            return len(out) - 1 if axis == 0 and shape[0] == out[-1] else None
        return axis if axis < len(out) - 1 and shape[: axis + 1] == out[: axis + 1] else None

    def permuted(self, node: Node, orders: Lying, types: Types = own_type) -> Permuted | None:
        order = self.lies(node, orders)
        if not self.is_layer or order is None or order[-1:] != (len(order) - 1,):
            return None
        return self.turned(node, order, order) if node.outputs[0].type.rank == len(order) else None


@record
class Along(Axes):
    """Along the axes that the operand `axes` holds, or these themselves; with `is_reduced` they disappear."""

    axes: str | tuple[int, ...] = "axis"
    is_reduced: bool = False

    @property
    def operands(self) -> tuple[str, ...]:
        return (self.axes,) if isinstance(self.axes, str) else ()

    def kept(self, node: Node, index: int, axis: int) -> int | None:
        along = self.along(node)
        if along is None or axis in along or not self.is_data(node, index):
            return None
        return axis - sum(a < axis for a in along if self._drops(node))

    def permuted(self, node: Node, orders: Lying, types: Types = own_type) -> Permuted | None:
        order, along = self.lies(node, orders), self.along(node)
        if order is None or along is None or not isinstance(self.axes, str):
            return None
        operand = node.inputs[node.op.input_index(self.axes)]
        assert operand is not None and operand.dtype.numpy is not None
        moved = np.array(sorted(order[axis] for axis in along), operand.dtype.numpy)
        constant = moved.reshape(operand.shape) if moved.size == operand.type.size else moved
        out = without(order, along) if self._drops(node) else order
        return self.turned(node, order, out, **{self.axes: constant})

    def along(self, node: Node) -> list[int] | None:
        """The axes, counted from the front; None where they are not known."""
        given = integers(node, self.axes) if isinstance(self.axes, str) else self.axes
        return None if given is None else sorted({axis % self.source(node).type.rank for axis in given})

    def _drops(self, node: Node) -> bool:
        return self.is_reduced and not getattr(node.op, "keep_dims", False)


def shape_of(node: Node, index: int) -> tuple[int, ...]:
    tensor = node.inputs[index]
    assert tensor is not None
    return tensor.shape


def integers(node: Node, name: str) -> list[int] | None:
    """The elements of a constant operand."""
    at = node.op.input_index(name)
    tensor = node.inputs[at] if at < len(node.inputs) else None
    return None if tensor is None or not tensor.is_constant else [int(n) for n in tensor.data.reshape(-1)]


def with_size(node: Node, name: str, place: int, before: int, after: int) -> dict[int, Array]:
    """The operand with one of its sizes changed; nothing where it does not hold the old one there."""
    values, at = integers(node, name), node.op.input_index(name)
    operand = node.inputs[at] if values is not None else None
    if values is None or operand is None or values[place : place + 1] != [before]:
        return {}
    return {at: np.array([*values[:place], after, *values[place + 1 :]], operand.dtype.numpy)}


def heaviest(node: Node, orders: Lying) -> Order:
    """The order in which most bytes of the operands lie already; in doubt another than the plain one."""
    plain = identity(node.outputs[0].type.rank)
    votes: dict[Order, int] = {}
    for tensor, order in zip(node.inputs, orders, strict=True):
        if tensor is not None and order is not None and len(order) == len(plain) and tensor.type.is_static:
            weight = 0 if sum(n != 1 for n in tensor.shape) < 2 else tensor.type.size
            votes[order] = votes.get(order, 0) + weight
    return max(votes, key=lambda order: (votes[order], order != plain), default=plain)


def _broadcast(tensor: Tensor | None, order: Order) -> Order | None:
    """The order in which an operand of the same or a lower rank is wanted."""
    if tensor is None or tensor.type.rank == len(order):
        return None if tensor is None else order
    own = range(len(order) - tensor.type.rank, len(order))
    stays = (tensor.type.is_static and tensor.type.size == 1) or all(order[axis] == axis for axis in own)
    return identity(tensor.type.rank) if stays else order
