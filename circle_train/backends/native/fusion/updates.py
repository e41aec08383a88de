"""Updates that kernels know: the rule's numbers become a tensor, each update a node with named inputs."""

from __future__ import annotations

from circle_train.backends.native.binders.update import Fate, UpdateNumbers, kind_of
from circle_train.backends.native.fusion.rewriter import Rewriter
from circle_train.ir import Node, Tensor
from circle_train.ops.internal.update import Update


def name_updates(rewriter: Rewriter) -> None:
    """Replace UPDATE by a fused node with the roles w.w, w.m, w.v and w.numbers."""
    numbers: dict[tuple[Tensor, object], Tensor] = {}
    for node in rewriter.nodes():
        kind = kind_of(node.op.rule) if isinstance(node.op, Update) else None
        if kind is None:
            continue
        w, g, scalars, *slots = node.inputs
        assert scalars is not None
        key = (scalars, node.op.rule)
        if key not in numbers:
            numbers[key] = _numbers(rewriter, scalars, UpdateNumbers(node.op.rule), rewriter.position[node])
        roles = {
            "g": g,
            "w.w": w,
            "w.numbers": numbers[key],
            **dict(zip(("w.m", "w.v"), slots, strict=False)),
        }
        rewriter.fuse([node], "update", roles, [], Fate(kind))


def _numbers(rewriter: Rewriter, scalars: Tensor, op: UpdateNumbers, before: float) -> Tensor:
    tensor = Tensor(f"numbers({scalars.name})", op.infer(scalars.type))
    rewriter.insert(Node(op, [scalars], [tensor]), before - 1 / 64)
    return tensor
