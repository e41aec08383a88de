"""Branches."""

from __future__ import annotations

from circle_train.convert.building.refusal import Refusal
from circle_train.convert.building.registry import Bundle, Call, handles
from circle_train.ir import Tensor


@handles("If")
def branch(c: Call) -> list[Tensor]:
    """The branch that a known condition takes; else both, and a choice between their results."""
    assert c.branch is not None
    known = c.b.known(c[0])
    if known is not None:
        value = c.b.value(known)
        if value is None:
            raise Refusal("its condition depends on a symbolic size; fix it by giving the input shapes")
        return c.branch(c.required("then_branch" if value.reshape(()) else "else_branch"))
    chosen = [c.branch(c.required(name)) for name in ("then_branch", "else_branch")]
    results = []
    for first, second in zip(*chosen, strict=True):
        if isinstance(first, Bundle) or isinstance(second, Bundle):
            raise Refusal("its condition is computed while running and its branches give sequences")
        if first.shape != second.shape or first.dtype != second.dtype:
            raise Refusal(
                f"its condition is computed while running and its branches give {first.type} and "
                f"{second.type}; they must be alike"
            )
        condition = c[0] if c[0].type.rank == 0 else c.b.reshape(c[0], ())
        results.append(c.b("SELECT_V2", condition, first, second))
    return results
