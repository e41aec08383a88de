"""Updates that kernels know, and gradients of parameters together with what becomes of them, so that none needs memory."""

from __future__ import annotations

from math import prod

from circle_train.backends.native.binders.update import SLOTS, Fate, UpdateNumbers, kind_of
from circle_train.backends.native.fusion.rewriter import Rewriter
from circle_train.ir import DType, Node, Tensor
from circle_train.ir.graph import constant
from circle_train.ir.views import stored_in
from circle_train.ops.base import Op
from circle_train.ops.internal.bfloat16 import RoundedConv2D, RoundedFullyConnected
from circle_train.ops.internal.gather_from_end import GatherFromEnd
from circle_train.ops.internal.gradient import Accumulate, Gradient
from circle_train.ops.internal.padded import PADDED
from circle_train.ops.internal.update import ClipByValue, ScaleBy, Update
from circle_train.ops.layers.conv import Conv2D, DepthwiseConv2D
from circle_train.ops.layers.linear import FullyConnected
from circle_train.ops.shapes.index import EmbeddingLookup, Gather
from circle_train.record import mutable, record

KERNELS: dict[type[Op], str] = {
    Conv2D: "convolution_w",
    DepthwiseConv2D: "convolution_w",
    FullyConnected: "fully_connected_w",
    RoundedConv2D: "convolution_w",
    **dict.fromkeys(PADDED.values(), "convolution_w"),
    RoundedFullyConnected: "fully_connected_w",
}
TABLES: dict[type[Op], str] = {Gather: "indices", GatherFromEnd: "indices", EmbeddingLookup: "ids"}


@record
class WeightOptions:
    """What becomes of the gradients of weights and bias (None: not wanted), and which of them are outputs."""

    op: Op
    shape: tuple[int, ...]
    w: Fate | None
    b: Fate | None
    made: tuple[str, ...]


@mutable
class Destiny:
    """What becomes of a gradient, the nodes that make it and do so, and the roles (w, m, v, a, numbers, factor and unit,
    behind a name and a dot) of what these read."""

    fate: Fate
    members: list[Node]
    roles: dict[str, Tensor | None]
    stored: list[Tensor]
    """The gradient itself, or the part of a weight that it moves, where that is not the whole."""
    g: Tensor | None = None
    """The gradient, as it is before it is clipped."""


def destiny(rewriter: Rewriter, node: Node, name: str) -> Destiny:
    """Follow a gradient to its update or sum if that alone reads it; otherwise it is stored.

    So is one that is made of weights: another update may need these as they were, and this one as it finds them.
    """
    g = node.outputs[0]
    made_of_weights = any(
        t is not None and stored_in(t, rewriter.views).state is not None for t in node.inputs
    )
    reader = None if made_of_weights else rewriter.only_reader(g)
    if reader is not None and isinstance(reader.op, Accumulate):
        return Destiny(Fate(accumulate=True), [node, reader], {f"{name}.g": reader.inputs[0]}, [])
    while reader is not None and type(reader.op) in (ClipByValue, ScaleBy):
        reader = rewriter.only_reader(reader.outputs[0])
    found = None if reader is None or not isinstance(reader.op, Update) else _update(rewriter, reader, name)
    if found is None or found.g is not g:
        return Destiny(Fate(), [node], {}, [g])
    found.members.append(node)
    return found


def join_weight_gradients(rewriter: Rewriter) -> None:
    """grad_w and grad_b of one product, with their updates."""
    for node in rewriter.nodes():
        op = node.op
        if node not in rewriter or not isinstance(op, Gradient) or type(op.of) not in KERNELS:
            continue
        if op.of.input_name(op.wrt) == "w" and node.outputs[0].dtype is DType.FLOAT32:
            _join(rewriter, node)


def _join(rewriter: Rewriter, node: Node) -> None:
    op = node.op
    named = dict(zip((name for name, _ in op.counts), node.inputs, strict=True))
    dy = named["dy"]
    shape = node.outputs[0].shape
    bias = _bias(rewriter, dy, op, shape)
    w = destiny(rewriter, node, "w")
    b = destiny(rewriter, bias, "b") if bias is not None else None
    roles = {"dy": dy, "x": named["x"], **w.roles, **(b.roles if b else {})}
    made = [name for name, d in (("w", w), ("b", b)) if d is not None and d.stored]
    results = [*w.stored, *(b.stored if b else [])]
    options = WeightOptions(op.of, shape, w.fate, b.fate if b else None, tuple(made))
    rewriter.fuse([*w.members, *(b.members if b else [])], KERNELS[type(op.of)], roles, results, options)


def _bias(rewriter: Rewriter, dy: Tensor, op: Gradient, shape: tuple[int, ...]) -> Node | None:
    """The node of the bias' gradient that goes with a gradient of weights."""
    channels = shape[3] if isinstance(op.of, DepthwiseConv2D) else shape[0]
    for reader in rewriter.readers(dy):
        other = reader.op
        if not isinstance(other, Gradient) or other.of is not op.of or other.source != op.source:
            continue
        if other.of.input_name(other.wrt) == "b" and prod(reader.outputs[0].shape) == channels:
            return reader
    return None


def join_table_gradients(rewriter: Rewriter) -> None:
    """The gradient of an embedding table with the table's update: no dense gradient is made."""
    for node in rewriter.nodes():
        op = node.op
        if not isinstance(op, Gradient) or type(op.of) not in TABLES:
            continue
        if (
            getattr(op.of, "batch_dims", None)
            or op.of.input_name(op.wrt) != "table"
            or int(getattr(op.of, "axis", 0)) % len(op.type.shape)
        ):
            continue
        end = destiny(rewriter, node, "w")
        named = dict(zip((name for name, _ in op.counts), node.inputs, strict=True))
        roles = {"dy": named["dy"], "indices": named[TABLES[type(op.of)]], **end.roles}
        options = WeightOptions(op.of, op.type.shape, end.fate, None, ("w",) if end.stored else ())
        rewriter.fuse(end.members, "table_w", roles, end.stored, options)


def name_updates(rewriter: Rewriter) -> None:
    """Replace each UPDATE that stayed alone by a fused node with the roles of `Destiny`, and g; it clips, too."""
    for node in rewriter.nodes():
        found = _update(rewriter, node, "w") if isinstance(node.op, Update) else None
        if found is not None:
            rewriter.fuse(found.members, "update", {"g": found.g, **found.roles}, found.stored, found.fate)


def _update(rewriter: Rewriter, node: Node, name: str) -> Destiny | None:
    """What an UPDATE makes of a gradient, with what clips that for it alone; None where no kernel knows its rule."""
    kind = kind_of(node.op.rule)
    if kind is None:
        return None
    w, g, scalars, *slots = node.inputs
    assert scalars is not None
    members, factor, limit = [node], None, 0.0
    scaling = _alone(rewriter, g, ScaleBy)
    if scaling is not None:
        members.append(scaling)
        g, factor = scaling.inputs
    clipping = _alone(rewriter, g, ClipByValue)
    if clipping is not None:
        members.append(clipping)
        g, limit = clipping.inputs[0], clipping.op.limit
    if (scalars, limit) not in rewriter.numbers:
        rewriter.numbers[scalars, limit] = _numbers(rewriter, scalars, UpdateNumbers(node.op.rule, limit))
    numbers = rewriter.numbers[scalars, limit]
    roles = {f"{name}.w": w, f"{name}.numbers": numbers, f"{name}.factor": factor}
    roles |= {f"{name}.{SLOTS[slot]}": tensor for slot, tensor in zip(node.op.rule.slots, slots, strict=True)}
    if w is not None and node.op.parts is not None:
        roles[f"{name}.unit"] = constant(node.op.parts.along(w.type.rank), f"units({w.name})")
    return Destiny(Fate(kind), members, roles, list(node.outputs), g)


def _alone(rewriter: Rewriter, g: Tensor | None, kind: type) -> Node | None:
    """The node of this kind that makes a gradient for its update alone."""
    maker = rewriter.producer(g)
    assert g is not None
    return maker if maker is not None and type(maker.op) is kind and rewriter.only_reader(g) else None


def _numbers(rewriter: Rewriter, scalars: Tensor, op: UpdateNumbers) -> Tensor:
    """What updates by one rule read: made at the start, once for all of them."""
    tensor = Tensor(f"numbers({scalars.name})", op.infer(scalars.type))
    rewriter.insert(Node(op, [scalars], [tensor]))
    return tensor
