"""Branches."""

from __future__ import annotations

from typing import Any

from circle_train.convert.building.builder import Builder
from circle_train.convert.building.refusal import Refusal
from circle_train.convert.building.registry import Bundle, Call, handles
from circle_train.errors import ModelError
from circle_train.ir import Tensor


@handles("If")
def branch(c: Call) -> list[Tensor]:
    """The branch that a known condition takes; else both, and a choice between their results."""
    assert c.branch is not None
    known = c.b.known(c[0])
    branches = [c.required(name) for name in ("then_branch", "else_branch")]
    value = None if known is None else c.b.value(known)
    if value is not None:
        return c.branch(branches[0 if value.reshape(()) else 1])
    if known is not None and [_names(graph) for graph in branches] == [["Squeeze"], ["Identity"]]:
        return c.branch(branches[0])  # PyTorch's x.squeeze(axis), which means an axis of size 1
    try:
        chosen = [c.branch(graph) for graph in branches]
    except (Refusal, ModelError) as error:
        raise type(error)(f"{error}{_remedy(c)}") from error
    results = []
    for given in zip(*chosen, strict=True):
        if any(isinstance(tensor, Bundle) for tensor in given):
            raise Refusal("its condition is computed while running and its branches give sequences")
        first, second = _of_one_rank(c.b, *given)
        if first.shape != second.shape or first.dtype != second.dtype:
            raise Refusal(
                f"its condition is computed while running and its branches give {first.type} and "
                f"{second.type}, which must be alike{_remedy(c)}"
            )
        condition = c.b.reshape(c.b.at_run_time(c[0]) or c[0], ())
        results.append(c.b("SELECT_V2", condition, first, second))
    return results


def _of_one_rank(b: Builder, first: Tensor, second: Tensor) -> tuple[Tensor, Tensor]:
    """Single elements in the lower of their ranks, which broadcasts alike."""
    if not first.type.size == second.type.size == 1:
        return first, second
    shape = min(first.shape, second.shape, key=len)
    return b.reshape(first, shape), b.reshape(second, shape)


def _remedy(c: Call) -> str:
    """What to do, where an input alone decides which branch is taken."""
    sources, seen = [c[0]], set[Tensor]()
    while sources:
        tensor = sources.pop()
        if tensor not in seen and not tensor.is_constant:
            seen.add(tensor)
            sources += [t for t in (tensor.producer.inputs if tensor.producer else ()) if t is not None]
    read = [tensor for tensor in seen if tensor in c.b.graph.inputs]
    if len(read) != 1 or read[0].dtype.is_float:
        return ""
    return f"; where '{read[0].name}' is always the same, say so: inputs={{'{read[0].name}': …}}"


def _names(graph: Any) -> list[str]:
    """The operators of a branch that do something."""
    return [node.op_type for node in graph.node if node.op_type != "Constant"]
