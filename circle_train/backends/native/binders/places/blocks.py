"""What moves parts of a tensor as they are: read backwards, repeated, mirrored, between space, channels and samples."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product
from typing import Any

import numpy as np

from circle_train.backends.native.binders.chain import chain
from circle_train.backends.native.binders.places.movement import fill, joined, strided_copy
from circle_train.backends.native.binders.reduce import reduced, summed
from circle_train.backends.native.engine.abi import ChainOp
from circle_train.backends.native.engine.binding import Calls, Values, binds, binds_gradient, floats
from circle_train.ir.tensor_type import Array
from circle_train.ops.attributes import MirrorPadMode
from circle_train.ops.internal.gradient import Gradient
from circle_train.ops.numeric.fill import Fill, ZerosLike
from circle_train.ops.shapes import join, pad, reverse, shape, space


@binds(reverse.ReverseV2)
def reversed_axes(op: reverse.ReverseV2, inputs: Values, outputs: Sequence[Array]) -> Calls:
    return strided_copy(op.forward(*inputs), outputs[0])


@binds_gradient("x", reverse.ReverseV2)
def reversed_gradient(op: Gradient, given: dict[str, Any], out: Array) -> Calls:
    assert isinstance(op.of, reverse.ReverseV2)
    return strided_copy(op.of.grad_x(**given), out)


# Pixels and channels


def _depth(image: Array, deep: Array, block: int) -> tuple[Array, Array]:
    """Both tensors as the same cells: samples, rows, columns, rows and columns of a block, channels."""
    n, height, width, channels = image.shape
    cells = (n, height // block, block, width // block, block, channels)
    split = image.reshape(cells).transpose(0, 1, 3, 2, 4, 5)
    return split, deep.reshape(split.shape)


@binds(space.SpaceToDepth, space.DepthToSpace)
def blocks(op: space.BlockOp, inputs: Values, outputs: Sequence[Array]) -> Calls:
    return _moved_blocks(isinstance(op, space.SpaceToDepth), op.block_size, inputs[0], outputs[0])


@binds_gradient("x", space.SpaceToDepth, space.DepthToSpace)
def blocks_gradient(op: Gradient, given: dict[str, Any], out: Array) -> Calls:
    assert isinstance(op.of, space.BlockOp)
    return _moved_blocks(isinstance(op.of, space.DepthToSpace), op.of.block_size, given["dy"], out)


def _moved_blocks(is_to_depth: bool, block: int, x: Array, y: Array) -> Calls:
    if not block or not x.size:
        return None
    if is_to_depth:
        return strided_copy(*_depth(x, y, block))
    image, deep = _depth(y, x, block)
    return strided_copy(deep, image)


# Pixels and samples


@binds(space.SpaceToBatchND, space.BatchToSpaceND)
def batches(op: Any, inputs: Values, outputs: Sequence[Array]) -> Calls:
    x, block, borders = inputs
    return _moved_batches(isinstance(op, space.SpaceToBatchND), x, outputs[0], block, borders)


@binds_gradient("x", space.SpaceToBatchND, space.BatchToSpaceND)
def batches_gradient(op: Gradient, given: dict[str, Any], out: Array) -> Calls:
    to_batch = isinstance(op.of, space.BatchToSpaceND)
    borders = given["crops" if to_batch else "paddings"]
    return _moved_batches(to_batch, given["dy"], out, given["block"], borders)


def _moved_batches(to_batch: bool, x: Array, y: Array, block: Array, borders: Array) -> Calls:
    image, stacked = (x, y) if to_batch else (y, x)
    pairs = _batch_parts(image, stacked, [int(b) for b in block], [int(b) for b in borders[:, 0]])
    copies = [strided_copy(*((a, b) if to_batch else (b, a))) for a, b in pairs]
    return joined(*([fill(y)] if y.dtype == np.float32 else [None]), *copies)


def _batch_parts(
    image: Array, stacked: Array, block: Sequence[int], before: Sequence[int]
) -> Iterator[tuple[Array, Array]]:
    """For every pixel of a block, where it lies in the image and among the samples; borders are cut off."""
    apart = stacked.reshape(*block, image.shape[0], *stacked.shape[1:])
    for offset in product(*(range(size) for size in block)):
        pixels, cells = [], []
        for axis, (at, size, border) in enumerate(zip(offset, block, before, strict=True)):
            extent, count = image.shape[axis + 1], stacked.shape[axis + 1]
            first = max(0, -(-(border - at) // size))
            last = min(count, -(-(extent + border - at) // size))
            pixels.append(slice(at + size * first - border, at + size * (last - 1) - border + 1, size))
            cells.append(slice(first, last))
        if all(cell.start < cell.stop for cell in cells):
            inside: tuple[Any, ...] = (slice(None), *pixels)
            own: tuple[Any, ...] = (*offset, slice(None), *cells)
            yield image[inside], apart[own]


# The same again


@binds(shape.Tile)
def tiled(op: shape.Tile, inputs: Values, outputs: Sequence[Array]) -> Calls:
    x, multiples = inputs
    times = [int(m) for m in multiples]
    whole = outputs[0].reshape([n for pair in zip(times, x.shape, strict=True) for n in pair])
    once = x.reshape([n for size in x.shape for n in (1, size)])
    return strided_copy(np.broadcast_to(once, whole.shape), whole)


@binds_gradient("x", shape.Tile)
def tiled_gradient(op: Gradient, given: dict[str, Any], out: Array) -> Calls:
    times = [int(m) for m in given["multiples"]]
    whole = given["dy"].reshape([n for pair in zip(times, out.shape, strict=True) for n in pair])
    return reduced(whole, out, range(0, whole.ndim, 2))


@binds_gradient("x", shape.BroadcastTo)
@binds_gradient("value", Fill)
def spread_gradient(op: Gradient, given: dict[str, Any], out: Array) -> Calls:
    dy = given["dy"]
    if dy.shape == out.shape:
        return strided_copy(dy, out)
    return summed(
        dy, out if out.ndim <= dy.ndim else out.reshape(())
    )  # a filled scalar's value may be a vector of one


@binds(Fill)
def filled(op: Fill, inputs: Values, outputs: Sequence[Array]) -> Calls:
    return strided_copy(np.broadcast_to(inputs[1].reshape(()), outputs[0].shape), outputs[0])


@binds(ZerosLike)
def zeros_like(op: ZerosLike, inputs: Values, outputs: Sequence[Array]) -> Calls:
    return fill(outputs[0])


@binds_gradient("xs", join.Pack)
def pack_gradient(op: Gradient, given: dict[str, Any], out: Array) -> Calls:
    assert isinstance(op.of, join.Pack)
    return strided_copy(np.moveaxis(given["dy"], op.of.axis, 0)[given["index"], ...], out)


@binds(join.Unpack)
def unpacked(op: join.Unpack, inputs: Values, outputs: Sequence[Array]) -> Calls:
    moved = np.moveaxis(inputs[0], op.axis, 0)
    return joined(*(strided_copy(moved[i, ...], y) for i, y in enumerate(outputs) if y.size))


@binds_gradient("x", join.Unpack)
def unpack_gradient(op: Gradient, given: dict[str, Any], out: Array) -> Calls:
    assert isinstance(op.of, join.Unpack)
    moved = np.moveaxis(out, op.of.axis, 0)
    return joined(*(strided_copy(dy, moved[i, ...]) for i, dy in enumerate(given["dys"]) if dy.size))


# More around it


@binds(pad.PadV2)
def padded(op: pad.PadV2, inputs: Values, outputs: Sequence[Array]) -> Calls:
    x, paddings, value = inputs
    around = strided_copy(np.broadcast_to(value.reshape(()), outputs[0].shape), outputs[0])
    return joined(around, strided_copy(x, outputs[0][op.inside(paddings, x.shape)]))


@binds(pad.MirrorPad)
def mirrored(op: pad.MirrorPad, inputs: Values, outputs: Sequence[Array]) -> Calls:
    x, paddings = inputs
    return joined(
        *(strided_copy(x[inner], outputs[0][outer]) for outer, inner in _mirrors(op, paddings, x.shape))
    )


@binds_gradient("x", pad.MirrorPad)
def mirrored_gradient(op: Gradient, given: dict[str, Any], out: Array) -> Calls:
    """What lies inside, then every reflection added where it came from."""
    dy, paddings = given["dy"], given["paddings"]
    if not floats(dy, out):
        return None
    assert isinstance(op.of, pad.MirrorPad)
    first, *others = _mirrors(op.of, paddings, out.shape)
    added = [_add(dy[outer], out[inner]) for outer, inner in others]
    return joined(strided_copy(dy[first[0]], out[first[1]]), *added)


def _add(part: Array, total: Array) -> Any:
    return chain(lambda b, x, y: b.emit(ChainOp.ADD, x, y), [total, part], total)


Slices = tuple[slice, ...]


def _mirrors(op: pad.MirrorPad, paddings: Array, shape: Sequence[int]) -> list[tuple[Slices, Slices]]:
    """Pairs of places in the output and in the input: first the input itself, then its reflections."""
    skipped = 1 if op.mode is MirrorPadMode.REFLECT else 0
    axes = []
    for size, (before, after) in zip(shape, paddings.tolist(), strict=True):
        pieces = [(slice(before, before + size), slice(0, size))]
        if before:  # from the border inwards: skipped … before - 1 + skipped, read backwards
            pieces.append(
                (slice(0, before), slice(before - 1 + skipped, skipped - 1 if skipped else None, -1))
            )
        if after:
            top = size - 1 - skipped
            stop = top - after
            pieces.append(
                (slice(before + size, before + size + after), slice(top, stop if stop >= 0 else None, -1))
            )
        axes.append(pieces)
    return [tuple(zip(*parts, strict=True)) for parts in product(*axes)]
