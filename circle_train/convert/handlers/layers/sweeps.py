"""Writes recurrent operators over sequences by what files have: a loop that takes one step, of whatever length.

A node that makes all outputs of one remembers what it stands for (`Sweep`), so that programs sweep instead of looping.
"""

from __future__ import annotations

from circle_train.convert.building.builder import Builder
from circle_train.convert.handlers.layers.recurrent import GATES, STEPS, OneWay, function
from circle_train.convert.stages.lower import FORMULAS, lower
from circle_train.ir import Graph, Node, Tensor, TensorType
from circle_train.ops.control.loop import While
from circle_train.ops.control.subgraph import WithGraphs
from circle_train.ops.internal.sequence.operators import OverSequence
from circle_train.ops.sweeps import KINDS, swept


def lower_loops(builder: Builder) -> list[Graph]:
    """Recurrent operators as loops; all graphs that loops run, and what these run in turn, ready for a file."""
    lower_sweeps(builder)
    found: list[Graph] = []
    for node in builder.graph.nodes:
        for graph in node.op.graphs if isinstance(node.op, WithGraphs) else ():
            inside = builder.successor()
            inside.graph = graph
            found += [graph, *lower_loops(inside)]
            lower(inside, *FORMULAS)
    return found


def lower_sweeps(builder: Builder) -> None:
    """In place."""
    for node in [node for node in builder.graph.nodes if isinstance(node.op, OverSequence)]:
        builder.graph.cursor = node
        _lower(builder, node)
    builder.graph.cursor = None


def _lower(b: Builder, node: Node) -> None:
    op: OverSequence = node.op
    runs = [_direction(b, node, number) for number in range(len(op.direction.backwards))]
    made = [b("PACK", *[run[0] for run in runs], values_count=len(runs), axis=1)]
    for state in range(1, len(node.outputs)):
        made.append(b("PACK", *[run[state] for run in runs], values_count=len(runs), axis=0))
    ends = []
    hint = swept(node)
    for tensor, old in zip(made, node.outputs, strict=True):
        last = tensor.producer
        assert last is not None
        ends.append(Node(last.op, last.inputs, [old], hint=hint if old is node.outputs[0] else None))
    b.graph.replace([*(t.producer for t in made if t.producer is not None), node], *ends)


def _direction(b: Builder, node: Node, number: int) -> list[Tensor]:
    """One direction's outputs, time × batch × units, and its last states."""
    op: OverSequence = node.op
    values = dict(zip((spec.name for spec in op.inputs), op.pad(node.inputs), strict=True))
    x, hidden = values["x"], b.shape(values["r"])[2]
    w, r = (_part(b, values[name], number) for name in ("w", "r"))
    rows = GATES[KINDS[type(op)]] * hidden
    wb = rb = None
    if values["b"] is not None:
        both = _part(b, values["b"], number)
        wb, rb = (b("SLICE", both, b.integers([i * rows]), b.integers([rows])) for i in (0, 1))
    if wb is not None and rb is not None and not getattr(op, "linear_before_reset", False):
        wb, rb = b("ADD", wb, rb), None
    xw = b("FULLY_CONNECTED", x, w, wb, keep_num_dims=True)
    peepholes = None
    if values.get("p") is not None:
        flat = _part(b, values["p"], number)
        peepholes = [b("SLICE", flat, b.integers([i * hidden]), b.integers([hidden])) for i in range(3)]
    steps, batch = b.shape(x)[:2]
    states = []
    for name in op.states:
        zeros = values[name] is None
        states.append(
            b("FILL", b.integers([batch, hidden]), b.like(x, 0)) if zeros else _part(b, values[name], number)
        )
    y = b("FILL", b.integers([steps, batch, hidden]), b.like(x, 0))
    limit = b.reshape(b.integers([steps]), ())
    carried = [b.constant(0, "int32"), limit, y, *states]
    loop = _Loop(b, op, number, hidden)
    fixed = [xw, r, rb, values["lengths"], *(peepholes or [])]
    results = loop.emitted([t for t in map(b.at_run_time, carried) if t is not None], fixed)
    return results[2 : 3 + len(states)]


def _part(b: Builder, tensor: Tensor, number: int) -> Tensor:
    """One direction of a tensor that begins with the axis of directions."""
    shape = b.shape(tensor)
    if shape[0] != 1:
        begin = b.integers([number] + [0] * (len(shape) - 1))
        tensor = b("SLICE", tensor, begin, b.integers([1, *shape[1:]]))
    return b.emit_unfolded("SQUEEZE", tensor, squeeze_dims=(0,))


class _Loop:
    """One direction's loop: what it carries are the step, their number, the outputs and states; the rest stays."""

    def __init__(self, builder: Builder, op: OverSequence, number: int, hidden: int) -> None:
        self.b, self.op, self.hidden = builder, op, hidden
        self.backwards = op.direction.backwards[number]
        self.functions = op.functions_of(number)

    def emitted(self, carried: list[Tensor], fixed: list[Tensor | None]) -> list[Tensor]:
        """The loop in the main graph; its results."""
        operands = [*carried, *(tensor for tensor in fixed if tensor is not None)]
        condition, body = self._inside("condition", operands), self._inside("body", operands)
        condition.graph.outputs = [condition("LESS", *condition.graph.inputs[:2])]
        own = iter(body.graph.inputs[len(carried) :])
        given = [None if tensor is None else next(own) for tensor in fixed]
        body.graph.outputs = [*self._step(body, body.graph.inputs[: len(carried)], given),
                              *body.graph.inputs[len(carried) :]]  # fmt: skip
        outputs = [Tensor(f"loop{i}", TensorType(t.dtype, t.shape)) for i, t in enumerate(operands)]
        for tensor, operand in zip(outputs, operands, strict=True):
            if operand in self.b.open:
                self.b.open[tensor] = TensorType(operand.dtype, self.b.open[operand].shape)
        node = Node(While(graphs=(condition.graph, body.graph)), list(operands), outputs)
        assert self.b.graph.cursor is not None
        self.b.graph.insert(node, before=self.b.graph.cursor)
        return outputs

    def _inside(self, name: str, operands: list[Tensor]) -> Builder:
        """A graph that takes what the loop carries."""
        inside = self.b.successor()
        inside.graph.name = name
        for index, operand in enumerate(operands):
            tensor = Tensor(f"{name}:{index}", TensorType(operand.dtype, operand.shape))
            inside.set_open(tensor, self.b.shape(operand))
            inside.graph.inputs.append(tensor)
        return inside

    def _step(self, b: Builder, carried: list[Tensor], fixed: list[Tensor | None]) -> list[Tensor]:
        step, limit, y, *states = carried
        xw, r, rb, lengths, *peepholes = fixed
        assert xw is not None and r is not None
        one = b.constant(1, "int32")
        at = b("SUB", b("SUB", limit, one), step) if self.backwards else step
        cell = OneWay(
            b, [], r, rb, [function(b, name) for name in self.functions], self.hidden, self.op.clip,
            [p for p in peepholes if p is not None] or None, getattr(self.op, "coupled", False),
            not getattr(self.op, "linear_before_reset", False),
        )  # fmt: skip
        made = STEPS[KINDS[type(self.op)]](cell, b("GATHER", xw, at, axis=0, batch_dims=0), states)
        shown = made[0]
        if lengths is not None:
            alive = b.reshape(b("GREATER", lengths, at), (b.shape(lengths)[0], 1))
            shown = b("SELECT_V2", alive, shown, b.like(shown, 0))
            made = [b("SELECT_V2", alive, new, old) for new, old in zip(made, states, strict=True)]
        zero = b.constant(0, "int32")
        place = b("PACK", at, zero, zero, values_count=3, axis=0)
        row = b("EXPAND_DIMS", shown, b.constant(0, "int32"))
        return [b("ADD", step, one), limit, b("DYNAMIC_UPDATE_SLICE", y, row, place), *made]
