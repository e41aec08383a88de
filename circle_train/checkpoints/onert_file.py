"""ONERT's training checkpoint (CKPT v1): a header, the constants by slot, Adam's moments, the steps done.

Little-endian, packed; all offsets count from the start of the file. Which tensor a slot holds is not written
(checkpoint_order tells), so a file is taken only when every size is the model's.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from itertools import accumulate, pairwise

import numpy as np

from circle_train.checkpoints.safetensors import Data
from circle_train.errors import CheckpointError
from circle_train.ir.tensor_type import Array
from circle_train.record import record

MAGIC, VERSION = 429, 1
HEADER = struct.Struct("<HBBIIII")
"""Magic, version, reserved, offsets of first and second moments and of the footer, number of slots."""
FOOTER = struct.Struct("<II")
"""Steps done, and an epoch that is always 0."""
LIMIT = 2**32 - 1

Section = tuple[Array, ...]
"""The raw bytes of every slot."""


@record
class OnertCheckpoint:
    """What the file holds; a slot of the moments is empty where nothing is trained."""

    values: Section
    moments: tuple[Section, Section] | None
    step: int


def encode(checkpoint: OnertCheckpoint) -> bytes:
    """The file's bytes."""
    return b"".join(pieces(checkpoint))


def pieces(checkpoint: OnertCheckpoint) -> list[bytes | memoryview]:
    """The same one after the other; slots are the caller's own memory."""
    sections = [checkpoint.values, *(checkpoint.moments or ())]
    offsets = [HEADER.size]
    for section in sections:
        offsets.append(offsets[-1] + 4 * len(section) + sum(slot.nbytes for slot in section))
    if offsets[-1] > LIMIT or checkpoint.step > LIMIT:
        raise CheckpointError(
            f"ONERT's checkpoint counts bytes and steps in 32 bits, these are {offsets[-1]:,} bytes and "
            f"{checkpoint.step:,} steps; save to a .safetensors file"
        )
    second = offsets[2] if checkpoint.moments else 0
    parts: list[bytes | memoryview] = [
        HEADER.pack(MAGIC, VERSION, 0, offsets[1], second, offsets[-1], len(checkpoint.values))
    ]
    for start, section in zip(offsets, sections, strict=False):
        begin = start + 4 * len(section)
        starts = list(accumulate((slot.nbytes for slot in section), initial=begin))[: len(section)]
        parts.append(struct.pack(f"<{len(section)}I", *starts))
        parts.extend(np.ascontiguousarray(slot).data for slot in section)
    return [*parts, FOOTER.pack(checkpoint.step, 0)]


def decode(data: Data, sizes: Sequence[int], where: str) -> OnertCheckpoint:
    """Read a file for a model whose slots have these sizes; anything that does not fit is refused."""
    first, second, footer = _check_header(data, len(sizes), where)
    adam = second != 0
    read = _Sections(data, sizes, where)
    values = read.section("constants", HEADER.size, first if first else footer, may_be_empty=False)
    moments = None
    if adam:
        moments = (
            read.section("first moments", first, second, may_be_empty=True),
            read.section("second moments", second, footer, may_be_empty=True),
        )
        for slot, (m, v) in enumerate(zip(*moments, strict=True)):
            if m.nbytes != v.nbytes:
                raise _refusal(
                    where, f"slot {slot} has {m.nbytes} bytes of first and {v.nbytes} of second moments"
                )
    step, _ = FOOTER.unpack_from(data, footer)
    if step == LIMIT:
        raise _refusal(where, f"the step counter is {step}, from which no step can follow")
    return OnertCheckpoint(values, moments, step)


def _check_header(data: Data, slots: int, where: str) -> tuple[int, int, int]:
    """Offsets of the first and second moments and of the footer, all within the file and in order."""
    if len(data) < HEADER.size + FOOTER.size:
        raise _refusal(where, f"it is {len(data)} bytes long, the shortest has {HEADER.size + FOOTER.size}")
    magic, version, _, first, second, footer, count = HEADER.unpack_from(data)
    if magic != MAGIC:
        raise _refusal(where, f"it starts with {magic}, expected {MAGIC}: this is not an ONERT checkpoint")
    if version != VERSION:
        raise _refusal(where, f"its version is {version}, expected {VERSION}")
    if footer != len(data) - FOOTER.size:
        raise _refusal(
            where,
            f"the footer is said to be at {footer}, expected {len(data) - FOOTER.size} in {len(data)} bytes",
        )
    if count != slots:
        raise CheckpointError(
            f"checkpoint {where} belongs to another model: it holds {count} constants, this model has {slots}"
        )
    ordered = first < second < footer if second else first in (0, footer)
    if not ordered:
        raise _refusal(where, f"the moments are said to be at {first} and {second}, the footer at {footer}")
    return first, second, footer


@record
class _Sections:
    data: Data
    sizes: Sequence[int]
    where: str

    def section(self, name: str, start: int, end: int, may_be_empty: bool) -> Section:
        """The slots between two offsets, which must leave no gap and have the model's sizes."""
        count = len(self.sizes)
        begin = start + 4 * count
        if start < HEADER.size or begin > end:
            raise _refusal(
                self.where, f"{name}: {end - start} bytes cannot hold the offsets of {count} slots"
            )
        offsets = [*struct.unpack_from(f"<{count}I", self.data, start), end]
        if offsets[0] != begin:
            raise _refusal(self.where, f"{name}: slot 0 is said to start at {offsets[0]}, expected {begin}")
        for slot, expected in enumerate(self.sizes):
            found = offsets[slot + 1] - offsets[slot]
            if found != expected and not (may_be_empty and found == 0):
                raise _refusal(
                    self.where,
                    f"{name}: slot {slot} has {found} bytes, the model's constant there {expected}",
                )
        raw = np.frombuffer(self.data, np.uint8)
        return tuple(raw[a:b] for a, b in pairwise(offsets))


def _refusal(where: str, found: str) -> CheckpointError:
    return CheckpointError(
        f"checkpoint {where} is damaged or belongs to another model: {found}; nothing was changed"
    )
