"""Operators that treat each axis by a number of its own: slices, repetitions, borders (see ops.axes)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from circle_train.ir import Node
from circle_train.ir.tensor_type import Array
from circle_train.ops.axes import Axes, Lying, Permuted, Types, integers, own_type, shape_of, with_size
from circle_train.ops.orders import Order, identity, inverse
from circle_train.record import record


@record
class PerAxis(Axes):
    """The operands `tables` have an entry, or a row, for every axis; an axis that keeps its size keeps its entries.

    Of the tables, `sizes` holds the output's sizes.
    """

    tables: tuple[str, ...] = ()
    sizes: str = ""

    @property
    def operands(self) -> tuple[str, ...]:
        return self.tables

    def kept(self, node: Node, index: int, axis: int) -> int | None:
        if not self.is_data(node, index) or any(integers(node, name) is None for name in self.tables):
            return None
        shape, out = shape_of(node, index), node.outputs[0].shape
        at = axis + len(out) - len(shape)
        return at if shape[axis] == out[at] >= 0 else None

    def permuted(self, node: Node, orders: Lying, types: Types = own_type) -> Permuted | None:
        order, rank = self.lies(node, orders), node.outputs[0].type.rank
        if order is None or len(order) != rank or order == identity(rank):
            return None
        moved = {}
        for name in self.tables:
            table = node.inputs[node.op.input_index(name)]
            if table is None or not table.is_constant or len(table.data) != rank:
                return None
            moved[name] = table.data[list(inverse(order))]
        return self.turned(node, order, order, self.with_order(node.op, inverse(order)), **moved)

    def with_order(self, op: Any, back: Order) -> Any:
        """The op, its options in the order in which the tables then are."""
        return op

    def resized(self, node: Node, index: int, axis: int, size: int) -> dict[int, Array]:
        at = self.kept(node, index, axis) if self.sizes else None
        return {} if at is None else with_size(node, self.sizes, at, shape_of(node, index)[axis], size)


@record
class Slices(PerAxis):
    """A part of each axis, which the op's `layout` tells as numpy's indices; bits of `masks` speak of the tables' entries.

    The masks in `shifts` make entries that are no axes, those in `drops` axes that the output has not.
    """

    picks = True
    masks: tuple[str, ...] = ()
    shifts: tuple[str, ...] = ()
    drops: tuple[str, ...] = ()

    def kept(self, node: Node, index: int, axis: int) -> int | None:
        tables = [integers(node, name) for name in self.tables]
        size = shape_of(node, index)[axis]
        if not self.is_data(node, index) or None in tables or size < 0:
            return None
        place = out = 0
        for entry in node.op.layout(self.source(node).type.rank, *tables):
            if entry is not None and place == axis:
                is_whole = isinstance(entry, slice) and range(*entry.indices(size)) == range(size)
                return out if is_whole else None
            place, out = place + (entry is not None), out + (not isinstance(entry, int))
        return None

    def permuted(self, node: Node, orders: Lying, types: Types = own_type) -> Permuted | None:
        has_axes = not any(getattr(node.op, name) for name in (*self.shifts, *self.drops))
        return super().permuted(node, orders, types) if has_axes else None

    def resized(self, node: Node, index: int, axis: int, size: int) -> dict[int, Array]:
        if self.kept(node, index, axis) is None or any(getattr(node.op, name) for name in self.shifts):
            return {}
        return with_size(node, self.sizes, axis, shape_of(node, index)[axis], size)

    def with_order(self, op: Any, back: Order) -> Any:
        bits = {name: getattr(op, name) for name in self.masks}
        moved = {
            name: sum((mask >> old & 1) << i for i, old in enumerate(back)) for name, mask in bits.items()
        }
        return replace(op, **moved)
