"""A kernel that moves over the spatial axes of channels-last tensors, in any number of dimensions.

`big` is what the window moves over, `small` has one position per placement: a convolution reads big and
writes small, its gradient and the transposed convolution the other way round. A kernel is small channels ×
*size × big channels / groups.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from math import prod

import numpy as np

from circle_train.errors import ModelError
from circle_train.ir import TensorType
from circle_train.ir.tensor_type import Array
from circle_train.ops.attributes import Padding
from circle_train.record import record

Sizes = tuple[int, ...]
CHUNK_BYTES = 4 << 20
"""Upper bound of the patches gathered for one matrix product (or one row of positions, if that is more)."""
MOST_PADDING, SMALL = 64, 1 << 20
"""By what zeros may multiply a tensor's elements, unless there are few."""


@record
class Window:
    """Geometry of one placement: all tuples have one entry per spatial axis.

    A stride beyond the axis, of which nothing depends, stands as the axis's length; so does the distance of a single cell.
    """

    spatial: Sizes
    size: Sizes
    strides: Sizes
    dilations: Sizes
    before: Sizes
    positions: Sizes

    @classmethod
    def over(
        cls, spatial: Sizes, size: Sizes, strides: Sizes, padding: Padding, dilations: Sizes | None = None
    ) -> Window:
        """The window of a forward convolution or pool."""
        dilations = tuple(
            d if k > 1 else min(d, n)
            for k, d, n in zip(size, dilations or (1,) * len(size), _at_least_one(spatial), strict=True)
        )
        extents = [(k - 1) * d + 1 for k, d in zip(size, dilations, strict=True)]
        axes = list(zip(spatial, extents, strides, strict=True))
        before = tuple(padding.amounts(*axis)[0] for axis in axes)
        positions = tuple(padding.output_size(*axis) for axis in axes)
        near = tuple(min(s, n) for s, n in zip(strides, _at_least_one(spatial), strict=True))
        window = cls(spatial, size, near, dilations, before, positions)
        if prod(window.padded) > max(MOST_PADDING * prod(spatial), SMALL):
            raise ModelError(
                f"windows of {size} cells, {dilations} apart, over {spatial} would need {prod(window.padded)} elements "
                f"with zeros around; expected at most {MOST_PADDING} times as many as there are: the file is damaged"
            )
        return window

    @classmethod
    def undone(
        cls, spatial: Sizes, size: Sizes, strides: Sizes, padding: Padding, dilations: Sizes, positions: Sizes
    ) -> Window:  # fmt: skip
        """The window of a convolution that a transposed one undoes; `spatial` is what this one makes."""
        extents = [(k - 1) * d + 1 for k, d in zip(size, dilations, strict=True)]
        before = tuple(padding.amounts(*axis)[0] for axis in zip(spatial, extents, strides, strict=True))
        return cls(spatial, size, strides, dilations, before, positions)

    @property
    def padded(self) -> Sizes:
        """Sizes after zeros were put around, enough for every placement."""
        needs = zip(
            self.spatial, self.size, self.strides, self.dilations, self.before, self.positions, strict=True
        )
        return tuple(max((o - 1) * s + (k - 1) * d + 1, p + n) for n, k, s, d, p, o in needs)

    def pad(self, big: Array, value: float = 0) -> Array:
        """Big with `value` around it; the array itself where nothing is to be added."""
        ends = [n - p - s for n, p, s in zip(self.padded, self.before, self.spatial, strict=True)]
        if not any(self.before) and not any(ends):
            return big
        result = np.full((big.shape[0], *self.padded, big.shape[-1]), value, big.dtype)
        result[self.inner] = big
        return result

    @property
    def inner(self) -> tuple[slice, ...]:
        """Where big lies in its padded copy."""
        return (slice(None), *(slice(p, p + n) for p, n in zip(self.before, self.spatial, strict=True)))

    def taps(self) -> Iterator[tuple[Sizes, tuple[slice, ...]]]:
        """For every kernel cell, in order: its index, and the part of padded big that it meets."""
        for cell in product(*map(range, self.size)):
            geometry = zip(cell, self.dilations, self.positions, self.strides, strict=True)
            yield cell, (slice(None), *(slice(i * d, i * d + (o - 1) * s + 1, s) for i, d, o, s in geometry))

    def patches(self, padded: Array) -> Array:
        """A view of padded big: batch × *positions × *size × channels."""
        inner = padded.strides[1:-1]
        strides = [s * step for s, step in zip(inner, self.strides, strict=True)]
        cells = [s * step for s, step in zip(inner, self.dilations, strict=True)]
        shape = (padded.shape[0], *self.positions, *self.size, padded.shape[-1])
        steps = (padded.strides[0], *strides, *cells, padded.strides[-1])
        return np.lib.stride_tricks.as_strided(padded, shape, steps, writeable=False)

    @property
    def is_pointwise(self) -> bool:
        """Every cell meets exactly itself: a plain matrix product."""
        return prod(self.size) == 1 and prod(self.strides) == 1 and self.positions == self.spatial

    def matrices(self, padded: Array) -> Iterator[tuple[tuple[int, slice], Array]]:
        """Patches as matrices (positions × cells), by chunks: (sample, rows of positions) and the copy."""
        view = self.patches(padded)
        row_bytes = prod(view.shape[2:]) * view.itemsize
        rows = max(1, CHUNK_BYTES // max(row_bytes, 1))
        width = prod(self.size) * view.shape[-1]
        for sample in range(view.shape[0]):
            for start in range(0, view.shape[1], rows):
                block = view[sample, start : start + rows]
                yield (sample, slice(start, start + rows)), block.reshape(-1, width)


def _at_least_one(sizes: Sizes) -> Sizes:
    return tuple(max(size, 1) for size in sizes)


def correlate(big: Array, kernel: Array, window: Window, groups: int = 1) -> Array:
    """small[n, o, c] = Σ_k Σ_i big[n, o·stride + k·dilation - before, i] kernel[c, k, i]."""
    channels = kernel.shape[0]
    weights = kernel.reshape(channels, -1).T
    small = np.empty((big.shape[0], *window.positions, channels), np.result_type(big, kernel))
    if window.is_pointwise and groups == 1:
        np.matmul(big.reshape(-1, big.shape[-1]), weights, out=small.reshape(-1, channels))
        return small
    padded = window.pad(big)
    for inputs, outputs in _groups(groups, big.shape[-1], channels):
        for place, matrix in window.matrices(padded[..., inputs]):
            small[place][..., outputs] = (matrix @ weights[:, outputs]).reshape(
                -1, *window.positions[1:], channels // groups
            )
    return small


def scatter(small: Array, kernel: Array, window: Window, groups: int = 1) -> Array:
    """The transpose of `correlate`: what it read from big, it adds to big."""
    channels = kernel.shape[-1] * groups
    if window.is_pointwise and groups == 1:
        return (small.reshape(-1, small.shape[-1]) @ kernel.reshape(-1, channels)).reshape(
            *small.shape[:-1], channels
        )
    padded = np.zeros((small.shape[0], *window.padded, channels), np.result_type(small, kernel))
    for inputs, outputs in _groups(groups, channels, kernel.shape[0]):
        part = np.ascontiguousarray(small[..., outputs])
        rows = part.reshape(-1, part.shape[-1])
        target = padded[..., inputs]
        weights = np.moveaxis(kernel[outputs], 0, -2)
        for cell, region in window.taps():
            target[region] += (rows @ weights[cell]).reshape(*part.shape[:-1], -1)
    return padded[window.inner]


def correlate_kernel(big: Array, small: Array, window: Window, groups: int = 1) -> Array:
    """The gradient of `correlate` for its kernel: Σ_n Σ_o small[n, o, c] big[n, o·stride + …, i]."""
    channels, inputs_each = small.shape[-1], big.shape[-1] // groups
    result = np.zeros((channels, *window.size, inputs_each), np.result_type(big, small))
    flat = result.reshape(channels, -1)
    if window.is_pointwise and groups == 1:
        np.matmul(small.reshape(-1, channels).T, big.reshape(-1, big.shape[-1]), out=flat)
        return result
    padded = window.pad(big)
    for inputs, outputs in _groups(groups, big.shape[-1], channels):
        for place, matrix in window.matrices(padded[..., inputs]):
            flat[outputs] += small[place][..., outputs].reshape(-1, channels // groups).T @ matrix
    return result


def _groups(count: int, inputs: int, outputs: int) -> Iterator[tuple[slice, slice]]:
    """Channels of big and of small that belong together."""
    for group in range(count):
        yield (
            slice(group * inputs // count, (group + 1) * inputs // count),
            slice(group * outputs // count, (group + 1) * outputs // count),
        )


def placements(
    op: str, spatial: Sizes, size: Sizes, strides: Sizes, padding: Padding, dilations: Sizes
) -> Sizes:
    """Output sizes for a type rule, -1 staying -1; refuses steps below 1 and windows that fit nowhere."""
    if min(*strides, *dilations) < 1:
        raise ModelError(
            f"{op}: strides {strides} and dilations {dilations}, expected at least 1: the file is damaged"
        )
    if min(size) < 1:
        raise ModelError(f"{op}: the kernel has size {size}, expected at least 1: the file is damaged")
    result = []
    for length, cells, stride, dilation in zip(spatial, size, strides, dilations, strict=True):
        extent = (cells - 1) * dilation + 1
        positions = padding.output_size(length, extent, stride) if length >= 0 else -1
        if positions == 0:
            raise ModelError(
                f"{op}: a window of {extent} does not fit into {length} positions; "
                "enlarge the input, or use SAME padding"
            )
        result.append(positions)
    return tuple(result)


def check_rank(op: str, expected: int, **types: object) -> None:
    """Refuse tensors of another rank."""
    for name, type_ in types.items():
        if (rank := getattr(type_, "rank", expected)) != expected:
            raise ModelError(
                f"{op}: {name} is {type_} of rank {rank}, expected rank {expected}; insert a RESHAPE"
            )


def check_weights(
    op: str, x: TensorType, w: TensorType, b: TensorType | None, taken: int, outputs: int
) -> None:
    """Refuse what does not fit; `taken` and `outputs` are the weights' axes of the channels."""
    check_rank(op, w.rank, input=x)
    check_floats(op, x, w, b)
    if x.shape[-1] not in (-1, w.shape[taken]):
        raise ModelError(
            f"{op}: input has {x.shape[-1]} channels, weights take {w.shape[taken]} "
            f"(input {x}, weights {w}); the weights' dimension {taken} must be the input's channels"
        )
    check_bias(op, b, w.shape[outputs])


def check_bias(op: str, b: object, outputs: int) -> None:
    """Refuse a bias that has not one element per output channel."""
    shape = getattr(b, "shape", None)
    if shape is not None and prod(shape) != outputs:
        raise ModelError(
            f"{op}: bias is {b}, expected {outputs} elements, one per output channel of the weights"
        )


def check_floats(op: str, *types: TensorType | None) -> None:
    """Refuse operands that are not all of one floating point type."""
    found = {type_.dtype for type_ in types if type_ is not None}
    if len(found) > 1 or not all(dtype.is_float for dtype in found):
        names = ", ".join(sorted(dtype.name for dtype in found))
        raise ModelError(
            f"{op}: operands have element types {names}, expected one floating point type; "
            "integers need a scale to stand for real numbers"
        )
