"""Loops whose end the data decides: a WHILE over what the body changes; what it leaves alone it simply reads."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from circle_train.convert.building.builder import Builder
from circle_train.convert.building.refusal import Refusal
from circle_train.convert.building.registry import Bundle, Call
from circle_train.convert.stages.names import names_read
from circle_train.ir import DType, Graph, Tensor, TensorType
from circle_train.ir.size import Number, Size, replaced, symbol, unknown
from circle_train.ops.control.loop import While

ENDLESS = 1 << 31
"""A bound that says that there is none."""
STEP, GOES_ON = 0, 1
"""What every such loop carries first; then its states, the stacks of what each turn adds, and what it only reads."""


def decided(c: Call) -> list[Tensor]:
    """The last states and the stacked results of each turn."""
    body, b = c.required("body"), c.b
    names = [info.name for info in body.input][2:]
    results = [info.name for info in body.output][1:]
    initial = [c[i] for i in range(2, len(c.inputs))]
    if any(isinstance(tensor, Bundle) for tensor in initial):
        raise Refusal("how often it runs is computed while running and it carries a sequence")
    stays = [name == result for name, result in zip(names, results, strict=False)]
    fixed = {name: t for name, t, same in zip(names, initial, stays, strict=True) if same}
    changing = [name for name, same in zip(names, stays, strict=True) if not same]
    begins = [tensor for tensor, same in zip(initial, stays, strict=True) if not same]
    most = c.optional(0)
    limit = None if most is None else b.cast(b.reshape(most, ()), DType.INT64)
    going = b.constant(True) if c.optional(1) is None else b.reshape(c[1], ())
    first = [b.constant(0, np.int64), going, *begins]
    inside = _inside(b, "body", first)
    step, _, *states = inside.graph.inputs
    bound = {**fixed, **dict(zip(changing, states, strict=True))}
    bound |= {body.input[0].name: step, body.input[1].name: inside.graph.inputs[GOES_ON]}
    assert c.branch is not None
    condition, *made = c.branch(body, bound, inside)
    last = [t for t, same in zip(made, stays, strict=False) if not same]
    stacks, grown = _stacks(b, inside, made[len(names) :])
    last = [
        inside.reshape(end, begin.shape) if begin.type.size == end.type.size == 1 else end
        for begin, end in zip(begins, last, strict=True)
    ]
    ends = [inside("ADD", step, inside.constant(1, np.int64)), inside.reshape(condition, ()), *last, *grown]
    read = names_read(body.node) | {info.name for info in body.output}
    first[2:] = _settled(b, inside, [name not in read for name in changing], begins, last)
    inside.graph.outputs = [_own(inside, tensor) for tensor in ends]
    turns = counted(
        b, inside, condition, dict(zip([step, *states], [first[0], *first[2:]], strict=True)), going, most
    )
    outputs = _loop(b, inside, [*first, *stacks], limit)
    if turns is not None:
        _set_length(b, turns, outputs[len(first) :], stacks)
    finals = iter(outputs[2:])
    return [*(fixed[name] if name in fixed else next(finals) for name in names), *finals]


def _set_length(b: Builder, turns: Number, stacks: Sequence[Tensor], made_of: Sequence[Tensor]) -> None:
    """There are as many results as turns."""
    for stack, one in zip(stacks, made_of, strict=True):
        shape = (turns, *b.shape(one)[1:])
        stack.type = TensorType(stack.dtype, tuple(map(b.example, shape)))
        b.set_open(stack, shape)


def counted(
    b: Builder,
    inside: Builder,
    condition: Tensor,
    begins: Mapping[Tensor, Tensor],
    going: Tensor,
    most: Tensor | None,
) -> Number | None:
    """How often a loop runs whose states begin so, where that is known but for open sizes."""
    bound = None if most is None else (b.sizes(most) or [None])[0]
    always = inside.value(condition)
    if always is not None and bool(always.reshape(-1)[0]) and bound is not None:
        starts = b.value(going)
        return bound if starts is not None and bool(starts.reshape(-1)[0]) else None
    turns = _until(b, condition, begins)
    is_bounded = most is not None and not (isinstance(bound, int) and bound >= ENDLESS)
    if is_bounded and bound != turns:
        return None
    first = b.value(going)
    if turns is None or not (
        _until(b, going, {}) == turns or (first is not None and bool(first.reshape(-1)[0]))
    ):
        return None
    return turns


def _until(b: Builder, condition: Tensor, begins: Mapping[Tensor, Tensor]) -> Number | None:
    """After how many turns `counter < limit` is false, the counter growing by 1; without counters that change: from now on."""
    node = _seen_through(condition).producer
    if node is not None and node.op.name == "LOGICAL_AND":
        return _least(*(_until(b, tensor, begins) for tensor in node.inputs if tensor is not None))
    if node is None or node.op.name != "LESS":
        return None
    counter, limit = (_seen_through(tensor) for tensor in node.inputs if tensor is not None)
    grows = counter.producer
    late = int(counter in begins)
    if begins and not late:
        if grows is None or grows.op.name != "ADD":
            return None
        old, step = (_seen_through(tensor) for tensor in grows.inputs if tensor is not None)
        counter, step = (old, step) if old in begins else (step, old)
        if counter not in begins or not step.is_constant or int(step.data.reshape(-1)[0]) != 1:
            return None
    start, end = (_number(b, begins.get(tensor, tensor)) for tensor in (counter, limit))
    if end is None or not isinstance(start, int):
        return None
    turns = end - start + late
    least = turns.low if isinstance(turns, Size) else turns
    return turns if (least or 0) >= 1 else None


def _least(one: Number | None, other: Number | None) -> Number | None:
    """The smaller of two, where it is known which that is."""
    if one is None or other is None:
        return None
    gap = one - other
    return None if isinstance(gap, Size) else one if gap <= 0 else other


def _number(b: Builder, tensor: Tensor) -> Number | None:
    """The one element, where it is known but for open sizes."""
    type_ = b.type_of(tensor)
    if type_ is None or type_.value is None or type_.value.size != 1:
        return None
    value = type_.value.reshape(-1)[0]
    return value if isinstance(value, Size) else int(value)


def _seen_through(tensor: Tensor) -> Tensor:
    """What is only called otherwise, or a number of another type."""
    while tensor.producer is not None and tensor.producer.op.name in ("CAST", "RESHAPE", "SQUEEZE"):
        source = tensor.producer.inputs[0]
        assert source is not None
        tensor = source
    return tensor


def _inside(b: Builder, name: str, operands: Sequence[Tensor]) -> Builder:
    """A graph that takes what the loop carries."""
    inside = b.successor()
    inside.outer, inside.graph.name = b, name
    for index, operand in enumerate(operands):
        _take(b, inside, operand, f"{name}:{index}")
    return inside


def _take(b: Builder, inside: Builder, operand: Tensor, name: str) -> Tensor:
    tensor = Tensor(name, TensorType(operand.dtype, operand.shape))
    inside.set_open(tensor, b.shape(operand))
    inside.graph.inputs.append(tensor)
    return tensor


def _settled(
    b: Builder, inside: Builder, unread: Sequence[bool], begins: Sequence[Tensor], ends: Sequence[Tensor]
) -> list[Tensor]:
    """The states' first values: one that no turn reads may be of any shape, and gets that of the results."""
    settled = []
    states = inside.graph.inputs[2 : 2 + len(begins)]
    for own, is_unread, begin, end in zip(states, unread, begins, ends, strict=True):
        before, after = (builder.type_of(t) for builder, t in ((b, begin), (inside, end)))
        assert before is not None and after is not None
        if list(before.shape) == list(after.shape) and begin.dtype == end.dtype:
            settled.append(begin)
            continue
        if not is_unread or begin.type.size != 1 or begin.dtype != end.dtype or not end.type.is_static:
            raise Refusal(f"a state is {begin.type} at first and {end.type} after a turn")
        sizes = [symbol(n.symbol) if isinstance(n, Size) and n.symbol else n for n in after.shape]
        wide = b("BROADCAST_TO", b.reshape(begin, ()), b.integers(sizes))
        own.type = TensorType(wide.dtype, wide.shape)
        inside.set_open(own, b.shape(wide))
        settled.append(wide)
    return settled


def _stacks(b: Builder, inside: Builder, results: Sequence[Tensor]) -> tuple[list[Tensor], list[Tensor]]:
    """Empty stacks before the loop, and longer ones after a turn."""
    begins, ends = [], []
    for number, result in enumerate(results):
        shape: Any = [outside(size) for size in inside.shape(result)]
        zero = b.constant(np.zeros((), result.dtype.numpy))
        empty = b("FILL", b.integers([0, *shape]), zero)
        begins.append(empty)
        stack = Tensor(f"stack:{number}", TensorType(empty.dtype, (-1, *result.shape)))
        length = unknown(f"?{stack.name}", ("size", stack, 0))
        inside.set_open(stack, (length, *inside.shape(result)))
        inside.graph.inputs.append(stack)
        row = inside("EXPAND_DIMS", result, inside.constant(0, np.int32))
        ends.append(inside("CONCATENATION", stack, row, axis=0))
    return begins, ends


def outside(size: Number) -> Number:
    """A size within a graph as the graph around it can compute it: from the symbols."""
    if not isinstance(size, Size):
        return size
    if any(atom.kind == "unknown" for atom in size.atoms()):
        raise Refusal("how often it runs is computed while running, and so is the size of what it collects")
    return replaced(size, {name: symbol(name) for name in size.symbols()})


def _own(b: Builder, tensor: Tensor) -> Tensor:
    """The tensor as something that the graph itself makes."""
    made = b.at_run_time(tensor) or tensor
    if made.producer is not None and made.producer in b.graph.nodes:
        return made
    return b.emit_unfolded("RESHAPE", made, b.integers(b.shape(made)))


def _loop(b: Builder, inside: Builder, carried: list[Tensor], limit: Tensor | None) -> list[Tensor]:
    """The WHILE in the graph at hand; what it carries after its last turn."""
    carried = [made for t in carried if (made := b.at_run_time(t)) is not None]
    limit = b.at_run_time(limit)
    captured = _captured(inside.graph)
    for outer in captured:
        own = _take(b, inside, outer, f"outer:{outer.name}")
        for node in inside.graph.readers(outer):
            inside.graph.reconnect(node, [own if t is outer else t for t in node.inputs])
        inside.graph.outputs.append(own)
    condition = b.successor()
    condition.graph.name = "condition"
    bound = [] if limit is None or limit.is_constant else [limit]
    operands = [*carried, *captured, *bound]
    for tensor in (*inside.graph.inputs, *bound):
        twin = Tensor(f"condition:{tensor.name}", TensorType(tensor.dtype, tensor.shape))
        if tensor.type.is_static:
            condition.set_open(twin, inside.shape(tensor))
        condition.graph.inputs.append(twin)
    if bound:
        inside.graph.outputs.append(_take(b, inside, bound[0], "limit"))
    goes_on = condition.graph.inputs[GOES_ON]
    if limit is not None:
        end = condition.graph.inputs[-1] if bound else condition.constant(limit.data)
        goes_on = condition("LOGICAL_AND", goes_on, condition("LESS", condition.graph.inputs[STEP], end))
    condition.graph.outputs = [_own(condition, goes_on)]
    return b.emit_unfolded_op(While(graphs=(condition.graph, inside.graph)), operands)[: len(carried)]


def _captured(graph: Graph) -> list[Tensor]:
    """What the graph's nodes read of another graph."""
    own = {*graph.inputs, *(out for node in graph.nodes for out in node.outputs)}
    read = [t for node in graph.nodes for t in node.inputs if t is not None]
    return list(dict.fromkeys(t for t in read if t not in own and not t.is_constant))
