"""Bfloat16 tensors: products, convolutions and chains read and write them as they lie."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from circle_train.backends.native.fusion.chains import is_link
from circle_train.backends.native.fusion.products import KERNELS, ProductOptions
from circle_train.backends.native.fusion.rewriter import Rewriter, fused_node
from circle_train.ir import Node, Tensor
from circle_train.ops.base import Op
from circle_train.ops.internal.bfloat16 import (
    Narrow,
    RoundedConv2D,
    RoundedFullyConnected,
    RoundToBfloat16,
    Widen,
)
from circle_train.ops.internal.fused import Fused
from circle_train.ops.layers.conv import DepthwiseConv2D
from circle_train.record import mutable

FORWARD = ("convolution", "fully_connected")
READS: dict[str, tuple[str, ...]] = dict.fromkeys(FORWARD, ("x", "add"))
READS |= {f"{name}_w": ("x",) for name in FORWARD} | {f"{name}_x": ("mask",) for name in FORWARD}
"""Roles whose tensors a kernel may read as bfloat16."""


@mutable
class Product:
    """A node as its kernel sees it."""

    node: Node
    kernel: str
    op: Op
    roles: dict[str, Tensor | None]
    settings: Any

    @property
    def weights(self) -> tuple[int, ...]:
        w = self.roles.get("w")
        return self.settings.shape if w is None else w.shape

    @property
    def overwrites(self) -> list[Tensor]:
        op, inputs = self.node.op, self.node.inputs
        found = [inputs[i] for i in op.overwrites] if isinstance(op, Fused) else []
        return [t for t in found if t is not None]


def read_narrow(rewriter: Rewriter) -> None:
    """What is widened for a product alone, or lies there narrowed too, is read as bfloat16."""
    narrowed = {n.inputs[0]: n.outputs[0] for n in rewriter.nodes() if isinstance(n.op, Narrow)}
    for node in rewriter.nodes():
        product = _product(node)
        if product is None:
            continue
        narrow: dict[Tensor, Tensor] = {}
        for role in _readable(product):
            tensor = product.roles.get(role)
            maker = rewriter.producer(tensor)
            source = maker.inputs[0] if maker and isinstance(maker.op, Widen) else narrowed.get(tensor)
            if tensor is not None and source is not None:
                narrow[tensor] = source
        if narrow:
            rewriter.replace([node], _reading(product, narrow))
    rewriter.drop(node for node in rewriter.nodes() if isinstance(node.op, Widen))


def write_narrow(rewriter: Rewriter) -> None:
    """A product whose rounded result is read as bfloat16 alone writes nothing else."""
    for node in rewriter.nodes():
        product = _product(node)
        if product is None or product.kernel not in FORWARD or not _is_dense(product):
            continue
        after = rewriter.only_reader(node.outputs[0])
        last = rewriter.only_reader(after.outputs[0]) if after else None
        if after and last and isinstance(after.op, RoundToBfloat16) and isinstance(last.op, Narrow):
            members = [node, after, last]
            rewriter.fuse(members, product.kernel, product.roles, last.outputs, product.settings)


def split_widening(rewriter: Rewriter) -> None:
    """A chain widens what it reads itself, whoever else reads the same."""
    for node in rewriter.nodes():
        if not isinstance(node.op, Widen):
            continue
        out = node.outputs[0]
        for reader in [r for r in rewriter.readers(out) if is_link(r)][1:]:
            twin = Tensor(out.name, out.type)
            rewriter.insert(Node(Widen(), list(node.inputs), [twin], members=[]), before=reader)
            rewriter.graph.reconnect(reader, [twin if t is out else t for t in reader.inputs])


def _product(node: Node) -> Product | None:
    """The node's roles; None where it is no product or convolution."""
    op = node.op
    if isinstance(op, Fused):
        if op.kernel not in READS:
            return None
        return Product(node, op.kernel, op.settings.op, op.by_role(node.inputs), op.settings)
    if type(op) not in KERNELS:
        return None
    roles = dict(zip("xwb", op.pad(node.inputs), strict=True))
    return Product(node, KERNELS[type(op)], op, roles, ProductOptions(op, op.activation))


def _readable(product: Product) -> Iterator[str]:
    """The roles that may be bfloat16 for this very product."""
    for role in READS[product.kernel]:
        if role == "add" and isinstance(product.op, DepthwiseConv2D):
            continue
        if role == "x" and not _is_pointwise(product):
            continue
        if role == "mask" and isinstance(product.op, RoundedConv2D) and product.op.strides != (1, 1):
            continue
        if _is_dense(product):
            yield role


def _is_dense(product: Product) -> bool:
    """Whether the kernels that know bfloat16 compute it: no groups, no multiplier."""
    op, weights = product.op, product.weights
    if isinstance(op, DepthwiseConv2D):
        seen = product.roles.get("x") or product.roles.get("mask")
        return seen is not None and product.weights[3] == seen.shape[3]
    return isinstance(op, (RoundedFullyConnected, RoundedConv2D)) and bool(weights)


def _is_pointwise(product: Product) -> bool:
    op = product.op
    return not isinstance(op, RoundedConv2D) or (product.weights[1:3] == (1, 1) and op.strides == (1, 1))


def _reading(product: Product, narrow: dict[Tensor, Tensor]) -> Node:
    """The node with these inputs widened inside it."""
    node = product.node
    twins = {tensor: Tensor(tensor.name, tensor.type) for tensor in narrow}
    group = [Node(Widen(), [narrow[t]], [twin], members=[]) for t, twin in twins.items()]
    inputs = [None if t is None else twins.get(t, t) for t in node.inputs]
    group.append(Node(node.op, inputs, list(node.outputs), node.index, node.originals))
    roles = {role: None if t is None else narrow.get(t, t) for role, t in product.roles.items()}
    return fused_node(group, product.kernel, roles, node.outputs, product.settings, product.overwrites)
