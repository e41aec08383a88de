"""What the parts of a batch tell of the whole one: losses that add up may be taken in parts, others may not."""

from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence

from circle_train.compile.program import Program
from circle_train.compile.separable import is_fixed, is_separable
from circle_train.ir import Node, Tensor
from circle_train.ir.order import in_order
from circle_train.ops.attributes import Activation
from circle_train.ops.internal.gradient import GuardFinite


class Share(enum.Enum):
    """How a tensor of the whole batch comes of those of its equal parts."""

    EACH = enum.auto()
    """Each gives its samples."""
    MEAN = enum.auto()
    """It is the mean of theirs."""
    SUM = enum.auto()
    """It is the sum of theirs."""
    SAME = enum.auto()
    """It depends on no sample."""


Shares = Mapping[Tensor | None, Share]


def shares(program: Program) -> tuple[Shares, Node | None]:
    """By tensor of forward part and loss; and the first node of which the parts tell nothing.

    A node counts as mixing samples unless it is known not to.
    """
    made: dict[Tensor | None, Share] = dict.fromkeys([*program.inputs, *program.targets], Share.EACH)
    mixing = None
    for node in _formed(program):
        share = _share(node, made, program.batch_size)
        if share is not None:
            made.update(dict.fromkeys(node.outputs, share))
        elif mixing is None:
            mixing = node
    return made, mixing


def formula(program: Program) -> list[object]:
    """The loss's operators and constants: a formula may ask how many samples there are."""
    reached = {*program.outputs, *program.targets}
    found: list[object] = []
    for node in program.operators[program.forward_nodes : _guard(program)]:
        if reached.isdisjoint(node.inputs):
            continue
        reached.update(node.outputs)
        constants = [t.data.tobytes() for t in node.inputs if t is not None and t.is_constant]
        found.append(node.op.name if node.op.view_of is not None else (node.op, constants))
    return found


def _formed(program: Program) -> list[Node]:
    """The nodes of forward part and loss, each after what it reads."""
    return in_order(program.operators[: _guard(program)])


def _guard(program: Program) -> int:
    """Where the loss is complete."""
    ends = (i for i, node in enumerate(program.operators) if isinstance(node.op, GuardFinite))
    return next(ends, len(program.operators))


def _share(node: Node, made: Shares, batch: int) -> Share | None:
    same = {t for t in node.inputs if t is not None and made.get(t) is Share.SAME}
    if is_fixed(node, same):
        return Share.SAME
    varying = [t for t in node.inputs if t is not None and made.get(t, Share.SAME) is not Share.SAME]
    kinds = {made[t] for t in varying}
    if kinds == {Share.EACH}:
        if is_separable(node, set(varying), batch, same):
            return Share.EACH
        return _over_samples(node, batch) if varying == node.inputs[:1] else None
    known = all(t is None or t in made or t.is_constant for t in node.inputs)
    if len(kinds) != 1 or not known or not _is_linear(node, varying, kinds == {Share.SUM}):
        return None
    return kinds.pop()


def _over_samples(node: Node, batch: int) -> Share | None:
    """A mean or a sum along the axis of the samples, and perhaps others."""
    kinds = {"MEAN": Share.MEAN, "SUM": Share.SUM}
    x, axes = (*node.inputs, None, None)[:2]
    if node.op.name not in kinds or x is None or axes is None or not axes.is_constant:
        return None
    is_first = any(int(axis) % len(x.shape) == 0 for axis in axes.data.reshape(-1))
    return kinds[node.op.name] if is_first and x.shape[0] == batch else None


def _is_linear(node: Node, varying: Sequence[Tensor], sums: bool) -> bool:
    """Whether a mean (or sum) of what comes in is the mean (or sum) of what comes out."""
    name = node.op.name
    if getattr(node.op, "fused_activation_function", Activation.NONE) is not Activation.NONE:
        return False
    if name in ("ADD", "SUB"):
        return len(varying) == len(node.inputs) or not sums
    if name in ("MUL", "DIV"):
        return len(varying) == 1 and (name == "MUL" or varying == node.inputs[:1])
    return name in ("NEG", "MEAN", "SUM") or node.op.view_of is not None
