"""Decides once, for the whole graph, in which order each tensor's axes lie in memory.

Handlers speak ONNX's order and put a TRANSPOSE before and after what Circle computes channels last. Here the
graph is emitted anew: a TRANSPOSE is not computed but remembered (`Stored`), operators say how they are computed on
operands that lie otherwise (`axes.permuted`), and only where one insists on another order is a TRANSPOSE written.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from circle_train.convert.building.builder import Builder
from circle_train.convert.stages.flattening import Shuffled, shuffled, shuffled_weights
from circle_train.ir import Node, Tensor
from circle_train.ir.size import Size
from circle_train.ir.tensor_type import Array, TensorType
from circle_train.ops.axes import Permuted
from circle_train.ops.layers.linear import FullyConnected
from circle_train.ops.numeric.fill import Shape
from circle_train.ops.orders import Order, identity, inverse, reordered
from circle_train.ops.shapes.shape import Reshape, Transpose

CHANNELS_FIRST: dict[int, Order] = {4: (0, 3, 1, 2)}
"""An image in ONNX's order, as a transposition of one that lies channels last."""


def lay_out(builder: Builder, nhwc: bool) -> Builder:
    """The same graph with as few transpositions as its operators need."""
    return Layout(builder, nhwc).run()


@dataclass(frozen=True)
class Stored:
    """A tensor of the new graph; the old one is its transposition by `order`."""

    tensor: Tensor
    order: Order


@dataclass
class Layout:
    old: Builder
    nhwc: bool
    stored: dict[Tensor, Stored] = field(default_factory=dict)
    shuffled: dict[Tensor, Shuffled] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.b = self.old.successor()
        self._transposed: dict[tuple[Tensor, Order], Tensor] = {}

    def run(self) -> Builder:
        self.b.graph.inputs = [self._input(tensor) for tensor in self.old.graph.inputs]
        for node in self.old.graph.nodes:
            if not self._move(node):
                self.emit(node, node.op, [self.plain(tensor) for tensor in node.inputs])
        self.b.graph.outputs = [self._output(tensor) for tensor in self.old.graph.outputs]
        return self.b

    def _input(self, tensor: Tensor) -> Tensor:
        """With nhwc, an image input is given channels last."""
        order = CHANNELS_FIRST.get(tensor.type.rank)
        images = any(n.op.name == "TRANSPOSE" for n in self.old.graph.readers(tensor))
        if not self.nhwc or order is None or not images:
            return tensor
        back = inverse(order)
        made = Tensor(tensor.name, TensorType(tensor.dtype, reordered(tensor.shape, back)))
        self.b.turned.add(made)
        self.b.set_open(made, reordered(self.old.shape(tensor), back))
        self.stored[tensor] = Stored(made, order)
        return made

    def _output(self, tensor: Tensor) -> Tensor:
        stored = self.where(tensor)
        lies = self.nhwc and stored.order == CHANNELS_FIRST.get(tensor.type.rank)
        made = stored.tensor if lies else self.ordered(tensor, identity(tensor.type.rank))
        if made.producer is None:
            made = self.b.emit_unfolded("RESHAPE", made, self.b.integers(self.b.shape(made)))
        made.name = tensor.name
        if lies:
            self.b.turned.add(made)
        return made

    # Where tensors lie

    def where(self, tensor: Tensor) -> Stored:
        return self.stored.get(tensor) or Stored(tensor, identity(tensor.type.rank))

    def plain(self, tensor: Tensor | None) -> Tensor | None:
        """The new tensor in the old one's order."""
        return None if tensor is None else self.ordered(tensor, identity(tensor.type.rank))

    def ordered(self, tensor: Tensor, order: Order) -> Tensor:
        """The new tensor of which the old one, with axes of size 1 before it if it has too few, is the transposition."""
        stored = self.where(tensor)
        if len(order) > len(stored.order):
            plain = self.ordered(tensor, identity(tensor.type.rank))
            wide = self.b.reshape(plain, (*(1,) * (len(order) - plain.type.rank), *self.b.shape(plain)))
            stored = Stored(wide, identity(len(order)))
        if stored.order == order:
            return stored.tensor
        wanted = reordered(stored.order, inverse(order))
        key = (stored.tensor, wanted)
        if key not in self._transposed:
            self._transposed[key] = self._transpose(stored.tensor, wanted)
        return self._transposed[key]

    def _transpose(self, tensor: Tensor, order: Order) -> Tensor:
        """A TRANSPOSE, or a RESHAPE where only axes of size 1 move.

        An axis that leaves the front may be a batch of 1 that grows when the model is trained.
        """
        shape = self.b.shape(tensor) if tensor.type.is_static else tensor.shape
        is_open = [isinstance(size, Size) for size in shape]
        moved = [axis for axis in order if shape[axis] != 1 or is_open[axis]]
        batch_stays = order[0] == 0 or any(is_open)
        if batch_stays and moved == sorted(moved) and tensor.type.is_static:
            return self.b.reshape(tensor, [shape[axis] for axis in order])
        return self.b.transpose(tensor, order)

    # Emitting

    def _move(self, node: Node) -> bool:
        """Compute the node on operands as they lie; False where its operands must lie in the old order."""
        if isinstance(node.op, Shape):
            return self._sizes(node)
        if node.inputs[0] in self.shuffled and isinstance(node.op, FullyConnected):
            return self._shuffled_layer(node, self.shuffled[node.inputs[0]])
        orders = [None if t is None else self._free_order(t) for t in node.inputs]
        found: Permuted | None = node.op.axes.permuted(node, orders, self.old.types)
        if found is None:
            return False
        if found.op is None:
            return self._flattening(node) or self._view(node, found)
        operands = [self._operand(t, wanted) for t, wanted in zip(node.inputs, found.operands, strict=True)]
        self.emit(node, found.op, operands, found.orders)
        return True

    def _free_order(self, tensor: Tensor) -> Order | None:
        stored = self.where(tensor)
        return None if stored.tensor.is_constant else stored.order

    def _operand(self, tensor: Tensor | None, wanted: Order | Array | None) -> Tensor | None:
        if isinstance(wanted, np.ndarray):
            return self.b.constant(wanted)
        return None if tensor is None or wanted is None else self.ordered(tensor, wanted)

    def _view(self, node: Node, found: Permuted) -> bool:
        """The output is the operand under other sizes; nothing is computed."""
        at = next(i for i, order in enumerate(found.operands) if order is not None)
        source, (target,), (order,) = node.inputs[at], node.outputs, found.orders
        lies, made = self._operand(source, found.operands[at]), inverse(order)
        assert lies is not None
        if not isinstance(node.op, Transpose):
            dims = reordered(self.old.shape(target), made)
            if not self.b.can_reshape(lies, dims):
                return False
            lies = self.b.reshape(lies, dims)
        self.stored[target] = Stored(lies, order)
        return True

    def _flattening(self, node: Node) -> bool:
        """An image that only dense layers read is flattened as it lies."""
        source, target = node.inputs[0], node.outputs[0]
        stored = self.where(source) if source is not None and isinstance(node.op, Reshape) else None
        found = shuffled(self.old, node, stored.order) if stored is not None else None
        if stored is None or found is None:
            return False
        self.stored[target] = Stored(self.b.reshape(stored.tensor, self.old.shape(target)), (0, 1))
        self.shuffled[target] = found
        return True

    def _shuffled_layer(self, node: Node, found: Shuffled) -> bool:
        x, weights, *rest = (self.plain(tensor) for tensor in node.inputs)
        assert weights is not None
        self.emit(node, node.op, [x, shuffled_weights(self.b, weights, found), *rest])
        return True

    def _sizes(self, node: Node) -> bool:
        """The sizes as they lie, put into the old order."""
        (source,) = node.inputs
        assert source is not None
        stored = self.where(source)
        if stored.order == identity(len(stored.order)):
            return False
        sizes = self.b.emit(node.op, [stored.tensor])[0]
        picked = self.b("GATHER", sizes, self.b.integers(stored.order), axis=0, batch_dims=0)
        self.stored[node.outputs[0]] = Stored(picked, (0,))
        return True

    def emit(
        self, node: Node, op: Any, inputs: Sequence[Tensor | None], orders: Sequence[Order] = ()
    ) -> None:
        """The node's successor; its outputs lie in `orders` (by default the old one)."""
        for index, (old, new) in enumerate(zip(node.outputs, self.b.emit(op, inputs), strict=True)):
            order = orders[index] if orders else identity(old.type.rank)
            if new.producer is not None:
                new.name = old.name
            self.b.refine(new, reordered(old.shape, inverse(order)))
            self.stored[old] = Stored(new, order)
