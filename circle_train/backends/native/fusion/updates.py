"""Updates that kernels know: the rule's numbers become a tensor, each update a node with named inputs."""

from __future__ import annotations

from circle_train.backends.native.binders.update import SLOTS, Fate, UpdateNumbers, kind_of
from circle_train.backends.native.fusion.rewriter import Rewriter
from circle_train.ir import Node, Tensor
from circle_train.ops.internal.update import ClipByValue, ScaleBy, Update


def name_updates(rewriter: Rewriter) -> None:
    """Replace UPDATE by a fused node with the roles w.w, w.m, w.v, w.a, w.numbers and w.factor; it clips, too."""
    numbers: dict[tuple[Tensor, object], Tensor] = {}
    for node in rewriter.nodes():
        kind = kind_of(node.op.rule) if isinstance(node.op, Update) else None
        if kind is None:
            continue
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
        made = UpdateNumbers(node.op.rule, limit)
        if (scalars, made) not in numbers:
            numbers[scalars, made] = _numbers(rewriter, scalars, made, node)
        roles = {"g": g, "w.w": w, "w.numbers": numbers[scalars, made], "w.factor": factor}
        roles |= {f"w.{SLOTS[name]}": slot for name, slot in zip(node.op.rule.slots, slots, strict=True)}
        rewriter.fuse(members, "update", roles, [], Fate(kind))


def _alone(rewriter: Rewriter, g: Tensor | None, kind: type) -> Node | None:
    """The node of this kind that makes a gradient for its update alone."""
    maker = rewriter.producer(g)
    assert g is not None
    return maker if maker is not None and type(maker.op) is kind and rewriter.only_reader(g) else None


def _numbers(rewriter: Rewriter, scalars: Tensor, op: UpdateNumbers, before: Node) -> Tensor:
    tensor = Tensor(f"numbers({scalars.name})", op.infer(scalars.type))
    rewriter.insert(Node(op, [scalars], [tensor]), before=before)
    return tensor
