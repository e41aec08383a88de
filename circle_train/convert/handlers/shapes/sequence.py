"""Sequences of tensors whose length is known: lists that exist only while converting."""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from circle_train.convert.building.refusal import Refusal
from circle_train.convert.building.registry import Bundle, Call, front, handles
from circle_train.ir import Tensor
from circle_train.ir.size import is_open


def parts_of(c: Call) -> list[Tensor]:
    """The first input's tensors."""
    if not isinstance(c[0], Bundle):
        raise Refusal("its sequence's length is not known before running")
    return list(c[0].parts)


def position(c: Call, index: int, count: int) -> int:
    """An input that counts from either end."""
    at = int(c.value(index, "position").reshape(()))
    if not -count <= at < count:
        raise Refusal(f"position {at} does not exist in a sequence of {count}")
    return at % count


@handles("SequenceConstruct")
def construct(c: Call) -> Tensor:
    return Bundle.of([c[i] for i in range(len(c.inputs))])


@handles("SequenceEmpty")
def empty(c: Call) -> Tensor:
    return Bundle.of([])


MOST_PARTS = 1 << 12
"""Tensors that one operator may split another into."""


@handles("SplitToSequence")
def split_to_sequence(c: Call) -> Tensor:
    b, axis, given = c.b, c.axis(0), c.optional(1)
    total = c.shape()[axis]
    if is_open([total]):
        raise Refusal("it splits along a symbolic size")
    size = c.value(1, "split") if given is not None else np.array(1)
    lengths = size.tolist()
    if size.ndim == 0:
        if lengths < 1:
            raise Refusal(f"its parts are to have {lengths} elements, expected at least 1")
        if total > lengths * MOST_PARTS:
            raise Refusal(
                f"it splits {total} elements into parts of {lengths}, expected at most {MOST_PARTS} parts"
            )
        lengths = [min(lengths, total - start) for start in range(0, total, lengths)]
    if sum(lengths) != total or not lengths or min(lengths) < 0:
        raise Refusal(f"its parts have {lengths} elements, together not the axis' {total}")
    if len(lengths) == 1:
        parts = [c[0]]
    else:
        sizes = b.integers([int(n) for n in lengths])
        parts = list(b.all("SPLIT_V", c[0], sizes, b.constant(axis, np.int32), num_splits=len(lengths)))
    if given is None and not c.attr("keepdims", 1):
        parts = [b.reshape(part, _without(b.shape(part), axis)) for part in parts]
    return Bundle.of(parts)


def _without(shape: tuple[int, ...], axis: int) -> tuple[int, ...]:
    return (*shape[:axis], *shape[axis + 1 :])


@handles("SequenceAt")
def at(c: Call) -> Tensor:
    parts = parts_of(c)
    return parts[position(c, 1, len(parts))]


@handles("SequenceLength")
def length(c: Call) -> Tensor:
    return c.b.constant(np.array(len(parts_of(c)), np.int64))


@handles("SequenceInsert")
def insert(c: Call) -> Tensor:
    parts = parts_of(c)
    place = position(c, 2, len(parts) + 1) if c.optional(2) is not None else len(parts)
    return Bundle.of([*parts[:place], c[1], *parts[place:]])


@handles("SequenceErase")
def erase(c: Call) -> Tensor:
    parts = parts_of(c)
    place = position(c, 1, len(parts)) if c.optional(1) is not None else len(parts) - 1
    return Bundle.of([*parts[:place], *parts[place + 1 :]])


@handles("ConcatFromSequence")
def concat_from_sequence(c: Call) -> Tensor:
    b, parts = c.b, parts_of(c)
    if not parts:
        raise Refusal("its sequence is empty")
    stacks = bool(c.attr("new_axis", 0))
    axis = front(int(c.required("axis")), parts[0].type.rank + stacks)
    if stacks:
        parts = [b.reshape(part, (*(s := b.shape(part))[:axis], 1, *s[axis:])) for part in parts]
    if any(one.dtype is not other.dtype for one, other in pairwise(parts)):
        raise Refusal("its tensors have several element types")
    return parts[0] if len(parts) == 1 else b("CONCATENATION", *parts, axis=axis)
