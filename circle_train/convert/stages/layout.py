"""Decides once, for the whole graph, in which order each tensor's axes lie in memory.

Handlers speak ONNX's order and put a TRANSPOSE before and after what Circle computes channels last. Here the
graph is emitted anew: a TRANSPOSE is not computed but remembered (`Stored`), operators that do not care take
the order in which their operands lie, and only where an operator insists on another order is one written.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from circle_train.convert.building.builder import Builder
from circle_train.convert.stages import regroup  # noqa: F401  (registers its move)
from circle_train.convert.stages.movement import MOVES, Order, Shuffled, Stored, inverse, permuted
from circle_train.ir import Node, Tensor
from circle_train.ir.tensor_type import TensorType

CHANNELS_FIRST: dict[int, Order] = {4: (0, 3, 1, 2)}
"""An image in ONNX's order, as a transposition of one that lies channels last."""


def lay_out(builder: Builder, nhwc: bool) -> Builder:
    """The same graph with as few transpositions as its operators need."""
    return Layout(builder, nhwc).run()


class Layout:
    def __init__(self, old: Builder, nhwc: bool) -> None:
        self.old = old
        self.b = old.successor()
        self.nhwc = nhwc
        self.stored: dict[Tensor, Stored] = {}
        self.shuffled: dict[Tensor, Shuffled] = {}
        self._transposed: dict[tuple[Tensor, Order], Tensor] = {}

    def run(self) -> Builder:
        self.b.graph.inputs = [self._input(tensor) for tensor in self.old.graph.inputs]
        for node in self.old.graph.nodes:
            self.b.annotation = dict(node.carried)
            move: Callable[[Layout, Node], bool] | None = MOVES.get(node.op.name)
            if move is None or not move(self, node):
                self.keep(node)
        self.b.annotation = {}
        self.b.graph.outputs = [self._output(tensor) for tensor in self.old.graph.outputs]
        return self.b

    def _input(self, tensor: Tensor) -> Tensor:
        """With nhwc, an image input is given channels last."""
        order = CHANNELS_FIRST.get(tensor.type.rank)
        images = any(n.op.name == "TRANSPOSE" for n in self.old.graph.readers(tensor))
        if not self.nhwc or order is None or not images:
            return tensor
        back = inverse(order)
        types = [permuted(t.shape, back) for t in self.old.types(tensor)]
        made = Tensor(tensor.name, TensorType(tensor.dtype, types[0]), carried={"nhwc": True})
        self.b.set_worlds(made, types[1:])
        self.stored[tensor] = Stored(made, order)
        return made

    def _output(self, tensor: Tensor) -> Tensor:
        stored = self.where(tensor)
        lies = self.nhwc and stored.order == CHANNELS_FIRST.get(tensor.type.rank)
        made = stored.tensor if lies else self.ordered(tensor, tuple(range(tensor.type.rank)))
        if made.producer is None:
            made = self.b.emit_unfolded("RESHAPE", made, self.b.integers(self.b.shape(made)))
        made.name = tensor.name
        made.carried["onnx"] = tensor.name
        if lies:
            made.carried["nhwc"] = True
        return made

    # Where tensors lie

    def where(self, tensor: Tensor) -> Stored:
        return self.stored.get(tensor) or Stored(tensor, tuple(range(tensor.type.rank)))

    def plain(self, tensor: Tensor | None) -> Tensor | None:
        """The new tensor in the old one's order."""
        if tensor is None:
            return None
        return self.ordered(tensor, tuple(range(tensor.type.rank)))

    def ordered(self, tensor: Tensor, order: Order) -> Tensor:
        """The new tensor of which the old one is the transposition by `order`."""
        stored = self.where(tensor)
        if stored.order == order:
            return stored.tensor
        back = inverse(order)
        wanted = tuple(stored.order[axis] for axis in back)
        key = (stored.tensor, wanted)
        if key not in self._transposed:
            self._transposed[key] = self._transpose(stored.tensor, wanted)
        return self._transposed[key]

    def _transpose(self, tensor: Tensor, order: Order) -> Tensor:
        """A TRANSPOSE, or a RESHAPE where only axes of size 1 move.

        An axis that leaves the front may be a batch of 1 that grows when the model is trained.
        """
        shape = self.b.shape(tensor) if tensor.type.is_static else tensor.shape
        is_open = [hasattr(size, "others") for size in shape]
        moved = [axis for axis in order if shape[axis] != 1 or is_open[axis]]
        batch_stays = order[0] == 0 or any(is_open)
        if batch_stays and moved == sorted(moved) and tensor.type.is_static:
            return self.b.reshape(tensor, [shape[axis] for axis in order])
        return self.b.transpose(tensor, order)

    # Emitting

    def keep(self, node: Node) -> None:
        """The node as it is, on operands in the old order."""
        self.emit(node, node.op, [self.plain(tensor) for tensor in node.inputs])

    def emit(
        self, node: Node, op: Any, inputs: Sequence[Tensor | None], orders: Sequence[Order] = ()
    ) -> None:
        """The node's successor; its outputs lie in `orders` (by default the old one)."""
        made = self.b.emit(op, inputs)
        for index, (old, new) in enumerate(zip(node.outputs, made, strict=True)):
            if new.producer is not None:
                new.name = old.name
                new.carried.update(old.carried)
            self.b.refine(new, permuted(old.shape, inverse(orders[index])) if orders else old.shape)
            self.stored[old] = Stored(new, orders[index] if orders else tuple(range(old.type.rank)))

    def alias(self, old: Tensor, new: Tensor, order: Order) -> None:
        """The old tensor is the new one, in this order; nothing is computed."""
        self.stored[old] = Stored(new, order)

    def choose(self, tensors: Sequence[Tensor], rank: int) -> Order:
        """The order in which most bytes of the operands lie already; in doubt not ONNX's."""
        identity = tuple(range(rank))
        votes: dict[Order, int] = {}
        for tensor in tensors:
            stored = self.where(tensor)
            if tensor.type.rank == rank and not stored.tensor.is_constant and tensor.type.is_static:
                weight = 0 if sum(n != 1 for n in tensor.shape) < 2 else tensor.type.size
                votes[stored.order] = votes.get(stored.order, 0) + weight
        return max(votes, key=lambda order: (votes[order], order != identity), default=identity)
