"""Attention as one pass forward and one backward, which makes scores and probabilities again; neither is in memory whole."""

from __future__ import annotations

from dataclasses import field

from circle_train.backends.native.engine.abi import NARROW_OUTPUTS
from circle_train.backends.native.fusion.attention.transposes import is_transpose
from circle_train.backends.native.fusion.rewriter import Rewriter, fused_node
from circle_train.ir import DType, Node, Tensor
from circle_train.ops.internal.gradient import Gradient
from circle_train.ops.layers.linear import BatchMatMul
from circle_train.ops.numeric.activation import Softmax
from circle_train.ops.numeric.arithmetic import Add, Div, Mul
from circle_train.ops.orders import Order, identity, inverse
from circle_train.record import mutable, record

MOST_AXES = 4


@record
class AttentionOptions:
    """softmax(scale q kᵀ + mask_scale mask) v, in which orders operands and results lie, and what each output is."""

    scale: float
    mask_scale: float
    orders: tuple[tuple[str, Order], ...]
    made: tuple[str, ...]


@mutable
class Attention:
    """The forward nodes, first to last, and what they read."""

    scores: Node
    factor: Node | None
    shift: Node | None
    softmax: Node
    product: Node
    mask: Tensor | None

    @property
    def nodes(self) -> list[Node]:
        found = (self.scores, self.factor, self.shift, self.softmax, self.product)
        return [node for node in found if node is not None]

    @property
    def operands(self) -> dict[str, Tensor]:
        """Queries, keys and values."""
        found = {"q": self.scores.inputs[0], "k": self.scores.inputs[1], "v": self.product.inputs[1]}
        return {role: tensor for role, tensor in found.items() if tensor is not None}

    def swaps(self, role: str) -> bool:
        """Whether the rows of this operand, or of its gradient, are its columns."""
        turned = self.scores.op.adjoint_rhs if role in ("k", "dk") else not self.product.op.adjoint_rhs
        return role in ("k", "dk", "v", "dv") and not turned

    def scales(self) -> tuple[float, float]:
        """Of the product of queries and keys, and of the mask."""
        beta, factor = float(self.softmax.op.beta), 1.0
        if self.factor is not None and self.factor.inputs[1] is not None:
            number = float(self.factor.inputs[1].data.reshape(-1)[0])
            factor = number if type(self.factor.op) is Mul else 1 / number
        return beta * factor, beta


@mutable
class Joined:
    """One pass as it grows: its nodes, those that it replaces, roles, results, and the orders that these lie in."""

    members: list[Node] = field(default_factory=list)
    replaced: list[Node] = field(default_factory=list)
    roles: dict[str, Tensor | None] = field(default_factory=dict)
    results: dict[str, Tensor] = field(default_factory=dict)
    orders: dict[str, Order] = field(default_factory=dict)
    values: dict[Tensor, Tensor] = field(default_factory=dict)
    """What stands here for tensors that are made elsewhere too."""

    def again(self, node: Node, *originals: Node) -> None:
        """The node once more, for this pass alone."""
        inputs = [None if t is None else self.values.get(t, t) for t in node.inputs]
        made = [Tensor(f"again({t.name})", t.type) for t in node.outputs]
        self.values.update(zip(node.outputs, made, strict=True))
        self.members.append(Node(node.op, inputs, list(made), members=originals))

    def take(self, node: Node) -> None:
        """The node itself."""
        inputs = [None if t is None else self.values.get(t, t) for t in node.inputs]
        self.members.append(Node(node.op, inputs, list(node.outputs), node.index, [node]))
        self.replaced.append(node)

    def read(self, rewriter: Rewriter, role: str, tensor: Tensor, swaps: bool) -> bool:
        """An operand, if it can be from where it lies before a TRANSPOSE, where its rows' elements are neighbours."""
        plain = identity(tensor.type.rank)
        maker = rewriter.producer(tensor)
        if maker is not None and is_transpose(maker):
            order = swapped(order_of(maker)) if swaps else order_of(maker)
            if order[-1] == len(order) - 1:
                self.again(maker, maker)
                self.roles[role], self.orders[role] = maker.inputs[0], order
                return True
        self.roles[role], self.orders[role] = tensor, swapped(plain) if swaps else plain
        return not swaps

    def make(self, rewriter: Rewriter, role: str, tensor: Tensor, swaps: bool) -> bool:
        """A result, if it can be where the TRANSPOSE behind puts it; the same of it."""
        plain = identity(tensor.type.rank)
        behind = rewriter.only_reader(tensor)
        if behind is not None and is_transpose(behind):
            order = swapped(inverse(order_of(behind))) if swaps else inverse(order_of(behind))
            if order[-1] == len(order) - 1:
                self.take(behind)
                self.results[role], self.orders[role] = behind.outputs[0], order
                return True
        self.results[role], self.orders[role] = tensor, swapped(plain) if swaps else plain
        return not swaps


def order_of(node: Node) -> Order:
    """The axes of what a TRANSPOSE, or the gradient of one, makes."""
    perm = node.inputs[1] if not isinstance(node.op, Gradient) else node.op.arguments(node.inputs)["perm"]
    assert perm is not None
    axes = tuple(int(i) % max(perm.type.size, 1) for i in perm.data.reshape(-1))
    return inverse(axes) if isinstance(node.op, Gradient) else axes


def swapped(order: Order) -> Order:
    return (*order[:-2], order[-1], order[-2])


def join_attentions(rewriter: Rewriter) -> None:
    """Each SOFTMAX between two batched products, with its gradients where it has any."""
    for node in rewriter.nodes():
        if node in rewriter and type(node.op) is Softmax:
            found = _forward(rewriter, node)
            gradients = None if found is None else _gradients(rewriter, found)
            if found is not None and gradients is not None and _is_closed(rewriter, found, gradients):
                _join(rewriter, found, gradients)


def _forward(rewriter: Rewriter, softmax: Node) -> Attention | None:
    probabilities = softmax.outputs[0]
    products = [r for r in rewriter.readers(probabilities) if type(r.op) is BatchMatMul]
    if len(products) != 1 or products[0].inputs[0] is not probabilities or products[0].op.adjoint_lhs:
        return None
    last = rewriter.producer(softmax.inputs[0])
    candidates: list[tuple[Node | None, Tensor | None, Node | None]] = [(None, None, last)]
    if last is not None and type(last.op) is Add and not last.op.activation:
        first, second = last.inputs
        candidates = [(last, second, rewriter.producer(first)), (last, first, rewriter.producer(second))]
    for shift, mask, before in candidates:
        factor = before if before is not None and _is_factor(before) else None
        scores = rewriter.producer(factor.inputs[0]) if factor is not None else before
        if scores is None or type(scores.op) is not BatchMatMul or scores.op.adjoint_lhs:
            continue
        found = Attention(scores, factor, shift, softmax, products[0], mask)
        if _fits(found):
            return found
    return None


def _is_factor(node: Node) -> bool:
    """A product with a number, or a quotient by one that has a reciprocal."""
    number = node.inputs[1] if type(node.op) in (Mul, Div) and not node.op.activation else None
    if number is None or not number.is_constant or number.state or number.type.size != 1:
        return False
    return type(node.op) is Mul or bool(number.data.all())


def _fits(found: Attention) -> bool:
    y, z = found.product.outputs[0], found.softmax.outputs[0]
    q, k, v = found.operands.values()
    mask = found.mask
    whole = [q, k, v, y, z, *(n.outputs[0] for n in found.nodes), *([] if mask is None else [mask])]
    if any(t.dtype is not DType.FLOAT32 or t.type.rank > MOST_AXES or not t.type.size for t in whole):
        return False
    if any(n.outputs[0].shape != z.shape for n in found.nodes[:-1]):
        return False
    batch = z.shape[:-2]
    depth, width = q.shape[-1], y.shape[-1]
    covers = mask is None or (bool(mask.shape) and mask.shape[-1] == z.shape[-1])
    alike = q.shape[:-2] == k.shape[:-2] == v.shape[:-2] == batch and bool(batch)
    return alike and covers and depth % NARROW_OUTPUTS == 0 and width % NARROW_OUTPUTS == 0


def _gradients(rewriter: Rewriter, found: Attention) -> dict[str, Node] | None:
    """The nodes of the way back by what they make, "dz" for those between; None where they are not as expected."""
    made: dict[str, Node] = {}
    probabilities = found.softmax.outputs[0]
    for reader in rewriter.readers(probabilities):
        of = reader.op.of if isinstance(reader.op, Gradient) else None
        if of is found.product.op:
            made["dv"] = reader
        elif of is found.softmax.op:
            made["softmax"] = reader
        elif reader is not found.product:
            return None
    if "softmax" not in made:
        return made
    before = rewriter.producer(made["softmax"].inputs[0])
    if before is None or not _is_gradient_of(before, found.product):
        return None
    made["product"] = before
    slopes = made["softmax"].outputs[0]
    if found.factor is not None:
        alone = rewriter.only_reader(slopes)
        if alone is None or not _is_gradient_of(alone, found.factor):
            return None
        made["factor"], slopes = alone, alone.outputs[0]
    for reader in rewriter.readers(slopes):
        if not _is_gradient_of(reader, found.scores):
            return None
        made["dk" if reader.op.wrt else "dq"] = reader
    return made if {"dq", "dk"} & made.keys() else None


def _is_gradient_of(node: Node, of: Node) -> bool:
    return isinstance(node.op, Gradient) and node.op.of is of.op


def _is_closed(rewriter: Rewriter, found: Attention, gradients: dict[str, Node]) -> bool:
    """Whether nobody else reads what lies between."""
    group = {*found.nodes, *gradients.values()}
    inner = [n.outputs[0] for n in found.nodes[:-1]]
    inner += [gradients[name].outputs[0] for name in ("product", "softmax", "factor") if name in gradients]
    return all(t not in rewriter.keep and set(rewriter.readers(t)) <= group for t in inner)


def _join(rewriter: Rewriter, found: Attention, gradients: dict[str, Node]) -> None:
    forward = _pass(rewriter, found)
    for node in found.nodes:
        if forward is not None:
            forward.take(node)
    if forward is None or not forward.make(rewriter, "y", found.product.outputs[0], False):
        return
    backward = _back(rewriter, found, gradients) if gradients else None
    if gradients and backward is None:
        return
    if backward is None or _fuse(rewriter, found, backward, "attention_gradient"):
        _fuse(rewriter, found, forward, "attention")


def _pass(rewriter: Rewriter, found: Attention) -> Joined | None:
    """A pass with its operands read; None where some lie otherwise than the kernel reads them."""
    made = Joined()
    lies = [made.read(rewriter, role, t, found.swaps(role)) for role, t in found.operands.items()]
    if found.mask is not None:
        made.roles["mask"], made.orders["mask"] = found.mask, identity(found.mask.type.rank)
    return made if all(lies) else None


def _back(rewriter: Rewriter, found: Attention, gradients: dict[str, Node]) -> Joined | None:
    made = _pass(rewriter, found)
    dy = gradients.get("dv", gradients.get("product"))
    assert dy is not None
    if made is None or dy.inputs[0] is None or not made.read(rewriter, "dy", dy.inputs[0], False):
        return None
    for node in found.nodes[:-1]:
        made.again(node)
    order = ("dv", "product", "softmax", "factor", "dq", "dk")
    for name in order:
        if name in gradients:
            made.take(gradients[name])
    wanted = [name for name in ("dq", "dk", "dv") if name in gradients]
    done = [made.make(rewriter, n, gradients[n].outputs[0], found.swaps(n)) for n in wanted]
    return made if all(done) else None


def _fuse(rewriter: Rewriter, found: Attention, made: Joined, kernel: str) -> bool:
    options = AttentionOptions(*found.scales(), tuple(made.orders.items()), tuple(made.results))
    node = fused_node(made.members, kernel, made.roles, list(made.results.values()), options, ())
    return rewriter.replace(made.replaced, node)
