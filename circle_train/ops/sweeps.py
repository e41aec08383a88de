"""Recurrent operators that files write as loops: what a loop stands for, and the operator that it stands for."""

from __future__ import annotations

from typing import Any

from circle_train.ir import Graph, Node, Tensor
from circle_train.ir.node import Hint
from circle_train.ops.internal.sequence.operators import (
    Direction,
    OverSequence,
    SequenceGru,
    SequenceLstm,
    SequenceRnn,
)
from circle_train.record import record

KINDS: dict[type[OverSequence], str] = {SequenceLstm: "LSTM", SequenceGru: "GRU", SequenceRnn: "RNN"}
FLAGS = {"LSTM": "coupled", "GRU": "linear_before_reset"}
OPERANDS = ("x", "w", "r", "b", "lengths", "h", "c", "p")


@record
class Sweep(Hint):
    """One of ONNX's recurrent operators, which a file writes as loops; the node makes its outputs of all steps."""

    x: Tensor
    w: Tensor
    r: Tensor
    b: Tensor | None
    lengths: Tensor | None
    h: Tensor | None
    c: Tensor | None
    p: Tensor | None
    last_h: Tensor | None
    last_c: Tensor | None
    kind: str
    direction: int
    functions: str
    clip: float
    flag: int


def swept(node: Node) -> Sweep:
    """What the formula of a recurrent operator stands for."""
    op: OverSequence = node.op
    kind = KINDS[type(op)]
    given = dict(zip((spec.name for spec in op.inputs), op.pad(node.inputs), strict=True))
    operands: Any = {name: given.get(name) for name in OPERANDS}
    last = [*node.outputs[1:], None][:2]
    flag = int(getattr(op, FLAGS[kind])) if kind in FLAGS else 0
    return Sweep(
        **operands, last_h=last[0], last_c=last[1], kind=kind, direction=int(op.direction),
        functions=",".join(op.functions), clip=op.clip, flag=flag,
    )  # fmt: skip


def recognise_sweeps(graph: Graph) -> None:
    """Let one operator stand for each loop that was written for one."""
    for node in graph.nodes:
        if isinstance(node.hint, Sweep):
            _recognise(graph, node, node.hint)


def _recognise(graph: Graph, end: Node, hint: Sweep) -> None:
    cls = next(cls for cls, kind in KINDS.items() if kind == hint.kind)
    options = {FLAGS[hint.kind]: bool(hint.flag)} if hint.kind in FLAGS else {}
    op = cls(Direction(hint.direction), tuple(hint.functions.split(",")), hint.clip, **options)
    operands = [getattr(hint, spec.name) for spec in op.inputs]
    known = set(graph.all_tensors())
    ends, outputs = [end], list(end.outputs)
    for tensor in (hint.last_h, hint.last_c)[: len(op.states)]:
        if tensor is not None and tensor in known and tensor.producer is not None:
            ends.append(tensor.producer)
            outputs.append(tensor)
        else:
            outputs.append(Tensor(f"{end.outputs[0].name}:{len(outputs)}", end.outputs[0].type))
    made = Node(op, operands, outputs, end.index)
    types = op.infer_types([None if t is None else t.type for t in operands])
    for tensor, type_ in zip(outputs, types, strict=True):
        tensor.type = type_
    graph.replace(ends, made)
