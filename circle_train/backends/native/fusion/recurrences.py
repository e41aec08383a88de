"""Recurrent operators as sweeps that keep a tape, which their way back takes up."""

from __future__ import annotations

from circle_train.backends.native.binders.recurrent import (
    RecurrentOptions,
    directions_of,
    is_known,
    tape_names,
)
from circle_train.backends.native.fusion.rewriter import Rewriter
from circle_train.ir import Node, Tensor
from circle_train.ops.internal.gradient import Gradients
from circle_train.ops.internal.tape import Tape
from circle_train.ops.layers.recurrent import Swept

Named = dict[str, Tensor | None]


def keep_tapes(rewriter: Rewriter) -> None:
    """Each recurrent operator that the kernels know, with its tape; its gradients read that."""
    for node in rewriter.nodes():
        if isinstance(node.op, Swept):
            inputs = node.op.pad(node.inputs)
            named = dict(zip((spec.name for spec in node.op.inputs), inputs, strict=True))
            if is_known(node.op, named):
                _join(rewriter, node, named)


def _join(rewriter: Rewriter, node: Node, named: Named) -> None:
    op = node.op
    assert isinstance(op, Swept)
    readers = [r for t in node.inputs if t is not None for r in rewriter.readers(t)]
    found = [r for r in dict.fromkeys(readers) if isinstance(r.op, Gradients) and r.op.of is op]
    tapes = _tapes(rewriter, node, named) if len(found) == 1 else {}
    extra = list(dict.fromkeys(t.producer for t in tapes.values() if t.producer is not None))
    results = [*node.outputs, *tapes.values()]
    rewriter.fuse([node, *extra], "recurrent", named, results, RecurrentOptions(op))
    if tapes:
        _join_back(rewriter, found[0], named, tapes)


def _tapes(rewriter: Rewriter, node: Node, named: Named) -> dict[str, Tensor]:
    """What each direction keeps, by role."""
    last, tapes = node, dict[str, Tensor]()
    for direction in range(directions_of(node.op)):
        tape, names = Tape(node.op, direction), tape_names(direction)
        types = tape.infer(*(None if t is None else t.type for t in named.values()))
        made = [Tensor(f"{name}({node.outputs[0].name})", t) for name, t in zip(names, types, strict=True)]
        extra = Node(tape, list(named.values()), list(made), members=[])
        rewriter.insert(extra, after=last)
        last = extra
        tapes |= dict(zip(names, made, strict=True))
    return tapes


def _join_back(rewriter: Rewriter, back: Node, named: Named, tapes: dict[str, Tensor]) -> None:
    op = back.op
    assert isinstance(op, Gradients)
    assert isinstance(op.of, Swept)
    position = 0
    dys: Named = {}
    for name, count in op.counts:
        if name == "dys":
            dys = {f"dy{i}": dy for i, dy in enumerate(back.inputs[position : position + count])}
        position += count
    wanted = tuple(op.of.input_name(index) for index in op.wrt)
    options = RecurrentOptions(op.of, wanted)
    rewriter.fuse([back], "recurrent_gradient", {**named, **dys, **tapes}, back.outputs, options)
