"""Blocks of pixels that move between space, channels and batch."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from circle_train.errors import ModelError
from circle_train.ir import DType, TensorType
from circle_train.ir.tensor_type import Array
from circle_train.ops.axes import Image, Mixes
from circle_train.ops.base import Example, Op, random, register
from circle_train.ops.integers import KEPT_8
from circle_train.ops.versions import INT8, Versions, when
from circle_train.ops.window import check_rank
from circle_train.record import record


@record
class BlockOp(Op):
    """Moves block × block pixels into or out of the channels."""

    block_size: int = 2

    axes = Image()

    def check(self, x: TensorType) -> None:
        check_rank(self.name, 4, input=x)
        if self.block_size < 1:
            raise ModelError(
                f"{self.name}: block_size is {self.block_size}, expected at least 1: the file is damaged"
            )


def to_depth(x: Array, block: int) -> Array:
    batch, height, width, channels = x.shape
    split = x.reshape(batch, height // block, block, width // block, block, channels)
    moved = split.transpose(0, 1, 3, 2, 4, 5)
    return np.reshape(moved, (batch, height // block, width // block, channels * block * block))


def to_space(x: Array, block: int) -> Array:
    batch, height, width, channels = x.shape
    split = x.reshape(batch, height, width, block, block, channels // (block * block))
    moved = split.transpose(0, 1, 3, 2, 4, 5)
    return np.reshape(moved, (batch, height * block, width * block, channels // (block * block)))


@register("SPACE_TO_DEPTH", "SpaceToDepthOptions")
@record
class SpaceToDepth(BlockOp):
    in_integers = KEPT_8
    versions = Versions(INT8)
    litert_lacks = frozenset({DType.BOOL, DType.INT16})

    def infer(self, x: TensorType) -> TensorType:
        self.check(x)
        batch, height, width, channels = x.shape
        for side, size in (("height", height), ("width", width)):
            if size > 0 and size % self.block_size:
                raise ModelError(
                    f"{self.name}: {side} {size} of {x} is no multiple of the block {self.block_size}; PAD it"
                )
        known = tuple(-1 if size < 0 else size // self.block_size for size in (height, width))
        return TensorType(x.dtype, (batch, *known, -1 if channels < 0 else channels * self.block_size**2))

    def forward(self, x: Array) -> Array:
        return to_depth(x, self.block_size)

    def grad_x(self, dy: Array) -> Array:
        return to_space(dy, self.block_size)

    @classmethod
    def examples(cls) -> Iterable[Example]:
        yield Example(cls(1), (random(2, 3, 5, 2),))
        yield Example(cls(2), (random(2, 4, 6, 3),))
        yield Example(cls(3), (random(1, 3, 6, 2),))


@register("DEPTH_TO_SPACE", "DepthToSpaceOptions")
@record
class DepthToSpace(BlockOp):
    in_integers = KEPT_8
    versions = Versions(INT8)
    litert_lacks = frozenset({DType.BOOL, DType.INT16})

    def infer(self, x: TensorType) -> TensorType:
        self.check(x)
        batch, height, width, channels = x.shape
        area = self.block_size**2
        if channels > 0 and channels % area:
            raise ModelError(
                f"{self.name}: {channels} channels of {x} are no multiple of {area}, the block's pixels"
            )
        known = tuple(-1 if size < 0 else size * self.block_size for size in (height, width))
        return TensorType(x.dtype, (batch, *known, -1 if channels < 0 else channels // area))

    def forward(self, x: Array) -> Array:
        return to_space(x, self.block_size)

    def grad_x(self, dy: Array) -> Array:
        return to_depth(dy, self.block_size)

    @classmethod
    def examples(cls) -> Iterable[Example]:
        yield Example(cls(1), (random(2, 3, 5, 2),))
        yield Example(cls(2), (random(2, 2, 3, 12),))
        yield Example(cls(3), (random(1, 1, 2, 18),))


def _values(op: str, name: str, type_: TensorType, shape: tuple[int, ...]) -> Array:
    """The value of an input that must be known and of this shape."""
    if type_.value is None:
        raise ModelError(f"{op}: {name} is computed while the model runs, expected a constant")
    if type_.value.shape != shape:
        raise ModelError(f"{op}: {name} is {type_}, expected the shape {list(shape)}")
    return type_.value.astype(np.int64)


def space_to_batch(x: Array, block: tuple[int, ...], pads: list[tuple[int, int]]) -> Array:
    """The block's pixels become batches, the first pixel's batches first."""
    rest = x.ndim - 1 - len(block)
    padded = np.pad(x, [(0, 0), *pads, *[(0, 0)] * rest])
    split = [padded.shape[0]]
    for size, cells in zip(padded.shape[1:], block, strict=False):
        split += [size // cells, cells]
    count = len(block)
    inside, across = range(2, 2 * count + 1, 2), range(1, 2 * count, 2)
    tail = range(1 + 2 * count, 1 + 2 * count + rest)
    moved = padded.reshape(*split, *padded.shape[1 + count :]).transpose(*inside, 0, *across, *tail)
    shape = (split[0] * int(np.prod(block)), *split[1::2], *padded.shape[1 + count :])
    return np.reshape(moved, shape)


def batch_to_space(x: Array, block: tuple[int, ...], crops: list[tuple[int, int]]) -> Array:
    """The reverse, with the borders cut off."""
    count = len(block)
    rest = range(2 * count + 1, count + x.ndim)
    batch = x.shape[0] // int(np.prod(block))
    split = x.reshape(*block, batch, *x.shape[1:])
    pairs = [axis for i in range(count) for axis in (count + 1 + i, i)]
    spatial = tuple(n * c for n, c in zip(x.shape[1:], block, strict=False))
    moved = split.transpose(count, *pairs, *rest).reshape(batch, *spatial, *x.shape[1 + count :])
    kept = (slice(None), *(slice(a, n - b) for (a, b), n in zip(crops, spatial, strict=True)))
    result: Array = moved[kept]
    return result


def _borders(pairs: Array) -> list[tuple[int, int]]:
    return [(int(before), int(after)) for before, after in pairs]


def _cells(block: Array) -> tuple[int, ...]:
    return tuple(int(size) for size in block)


@register("SPACE_TO_BATCH_ND", "SpaceToBatchNDOptions")
@record
class SpaceToBatchND(Op):
    axes = Mixes("pixels become samples")
    static_inputs = ("block", "paddings")
    in_integers = KEPT_8
    versions = Versions(
        {DType.INT8: 2, DType.INT16: 4}, (when(3, lambda node, inputs: inputs[0].type.rank != 4),)
    )

    def infer(self, x: TensorType, block: TensorType, paddings: TensorType) -> TensorType:
        sizes, pads = _checked(self.name, "paddings", x, block, paddings)
        spatial = []
        for size, cells, (before, after) in zip(x.shape[1:], sizes, pads, strict=False):
            if size >= 0 and (size + before + after) % cells:
                raise ModelError(
                    f"{self.name}: {size} + {before} + {after} pixels of {x} are no multiple of {cells}; "
                    "change the paddings or the block"
                )
            spatial.append(-1 if size < 0 else (size + before + after) // cells)
        batch = -1 if x.shape[0] < 0 else x.shape[0] * int(np.prod(sizes))
        return TensorType(x.dtype, (batch, *spatial, *x.shape[1 + len(sizes) :]))

    def forward(self, x: Array, block: Array, paddings: Array) -> Array:
        return space_to_batch(x, _cells(block), _borders(paddings))

    def grad_x(self, dy: Array, block: Array, paddings: Array) -> Array:
        return batch_to_space(dy, _cells(block), _borders(paddings))

    @classmethod
    def examples(cls) -> Iterable[Example]:
        for shape, block, pads in (
            ((2, 4, 6, 3), (2, 2), ((0, 0), (0, 0))), ((1, 3, 5, 2), (2, 3), ((1, 0), (2, 2))),
            ((2, 5, 3), (3,), ((0, 1),)),
        ):  # fmt: skip
            yield Example(cls(), (random(*shape), np.array(block, np.int32), np.array(pads, np.int32)))


@register("BATCH_TO_SPACE_ND", "BatchToSpaceNDOptions")
@record
class BatchToSpaceND(Op):
    axes = Mixes("samples become pixels")
    static_inputs = ("block", "crops")
    in_integers = KEPT_8
    versions = Versions(
        {DType.INT8: 2, DType.INT16: 4}, (when(3, lambda node, inputs: inputs[0].type.rank != 4),)
    )

    def infer(self, x: TensorType, block: TensorType, crops: TensorType) -> TensorType:
        sizes, cut = _checked(self.name, "crops", x, block, crops)
        cells = int(np.prod(sizes))
        if x.shape[0] >= 0 and x.shape[0] % cells:
            raise ModelError(
                f"{self.name}: batch {x.shape[0]} of {x} is no multiple of {cells}, the block's pixels"
            )
        spatial = [
            -1 if size < 0 else size * c - a - b
            for size, c, (a, b) in zip(x.shape[1:], sizes, cut, strict=False)
        ]
        if any(size == 0 or size < -1 for size in spatial):
            raise ModelError(
                f"{self.name}: crops {cut} leave nothing of {x} with blocks {sizes}; make them smaller"
            )
        batch = -1 if x.shape[0] < 0 else x.shape[0] // cells
        return TensorType(x.dtype, (batch, *spatial, *x.shape[1 + len(sizes) :]))

    def forward(self, x: Array, block: Array, crops: Array) -> Array:
        return batch_to_space(x, _cells(block), _borders(crops))

    def grad_x(self, dy: Array, block: Array, crops: Array) -> Array:
        return space_to_batch(dy, _cells(block), _borders(crops))

    @classmethod
    def examples(cls) -> Iterable[Example]:
        for shape, block, crops in (
            ((8, 2, 3, 3), (2, 2), ((0, 0), (0, 0))), ((6, 2, 3, 2), (2, 3), ((1, 0), (2, 2))),
            ((6, 2, 3), (3,), ((0, 1),)),
        ):  # fmt: skip
            yield Example(cls(), (random(*shape), np.array(block, np.int32), np.array(crops, np.int32)))


def _checked(
    op: str, name: str, x: TensorType, block: TensorType, borders: TensorType
) -> tuple[tuple[int, ...], list[tuple[int, int]]]:
    """The block and the borders as numbers, after all that both operators refuse."""
    count = block.shape[0] if block.rank == 1 else 0
    if not 1 <= count < x.rank:
        raise ModelError(f"{op}: block is {block}, expected 1 to {x.rank - 1} numbers for the input {x}")
    sizes = _cells(_values(op, "block", block, (count,)))
    pairs = _borders(_values(op, name, borders, (count, 2)))
    if min(sizes) < 1 or min(min(pair) for pair in pairs) < 0:
        raise ModelError(
            f"{op}: block {list(sizes)} and {name} {pairs}, expected at least 1 and 0: the file is damaged"
        )
    return sizes, pairs
