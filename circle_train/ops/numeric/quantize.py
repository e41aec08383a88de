"""Between stored and real numbers: affine quantization, half precision, and sparse constants."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import field
from math import prod
from typing import Any

import numpy as np

from circle_train.errors import ModelError
from circle_train.ir import DType, Quantization, Tensor, TensorType
from circle_train.ir.tensor_type import Array
from circle_train.ops.axes import Elementwise, Mixes
from circle_train.ops.base import Example, Op, random, register
from circle_train.ops.versions import Versions, when
from circle_train.record import record


def dequantize(stored: Array, quantization: Quantization) -> Array:
    """scale · (stored - zero point) in float32; formed in float64, because a bias has 32 bits."""
    scale, zero_point = _along_axis(quantization, stored)
    real: Array = ((stored.astype(np.float64) - zero_point) * scale).astype(np.float32)
    return real


def quantize(real: Array, quantization: Quantization, dtype: DType) -> Array:
    """round(real / scale + zero point), halves away from zero as in TFLite's pools, in the type's range."""
    numpy_dtype = dtype.numpy
    if numpy_dtype is None or numpy_dtype.kind not in "iu":
        raise ModelError(f"a quantized tensor is {dtype.name}, expected 8, 16 or 32 bit integers")
    scale, zero_point = _along_axis(quantization, real)
    stored = real.astype(np.float64) / scale + zero_point
    rounded = np.trunc(stored + np.copysign(0.5, stored))
    limits = np.iinfo(numpy_dtype)
    clipped: Array = np.clip(np.nan_to_num(rounded), limits.min, limits.max).astype(numpy_dtype)
    return clipped


def _along_axis(quantization: Quantization, array: Array) -> tuple[Array, Array]:
    """Scale and zero point as arrays that broadcast with the elements."""
    scale = np.array(quantization.scale, np.float64)
    zero_point = np.array(quantization.zero_point or (0,), np.float64)
    axis = quantization.axis
    if scale.size == 1:
        return scale.reshape(()), zero_point[:1].reshape(())
    if (
        not -array.ndim <= axis < array.ndim
        or array.shape[axis] != scale.size
        or zero_point.size not in (1, scale.size)
    ):
        raise ModelError(
            f"quantization has {scale.size} scales and {zero_point.size} zero points along axis {axis} of a "
            f"tensor of shape {list(array.shape)}, expected one per element of that axis: the file is damaged"
        )
    shape = [1] * array.ndim
    shape[axis] = scale.size
    return scale.reshape(shape), zero_point.reshape(shape if zero_point.size > 1 else [1] * array.ndim)


def densify(values: Array, sparsity: dict[str, Any], shape: tuple[int, ...]) -> Array:
    """The dense tensor that TFLite's SparsityParameters describe; `values` are the stored elements."""
    result = np.zeros(shape, values.dtype)
    result.reshape(-1)[places_of(sparsity, shape, len(values))] = values
    return result


def places_of(sparsity: dict[str, Any], shape: tuple[int, ...], count: int) -> Array:
    """Where the stored elements lie in the flattened dense tensor.

    Every level of the traversal order is one dimension of the blocked tensor: dense, or compressed as in CSR.
    """
    order, sizes, blocks = _levels(sparsity, shape)
    coordinates: dict[int, Array] = {}
    nodes = 1
    for level, dimension in enumerate(order):
        parents, children = _expand(sparsity["dim_metadata"][level], nodes, sizes[dimension], level)
        coordinates = {known: indices[parents] for known, indices in coordinates.items()}
        coordinates[dimension] = children
        nodes = len(children)
    if count != nodes:
        raise ModelError(
            f"sparsity describes {nodes} elements, the buffer holds {count}: the file is damaged"
        )
    places = np.zeros(nodes, np.intp)
    for axis, size in enumerate(shape):
        cells = coordinates[axis]
        if axis in blocks:
            cells = cells * sizes[blocks[axis]] + coordinates[blocks[axis]]
        places = places * size + cells
    return places


def _levels(
    sparsity: dict[str, Any], shape: tuple[int, ...]
) -> tuple[list[int], dict[int, int], dict[int, int]]:
    """Traversal order, sizes of the blocked tensor's dimensions, and which of them holds an axis' blocks."""
    order = [int(dimension) for dimension in sparsity.get("traversal_order", ())]
    block_map = [int(axis) for axis in sparsity.get("block_map", ())]
    metadata = sparsity.get("dim_metadata", ())
    rank = len(shape)
    sound = sorted(order) == list(range(rank + len(block_map))) and len(metadata) == len(order)
    if not sound or len(set(block_map)) != len(block_map) or not set(block_map) <= set(range(rank)):
        raise ModelError(
            f"sparsity has traversal order {order}, block map {block_map} and {len(metadata)} dimensions for "
            f"the shape {list(shape)}, expected every dimension and block once: the file is damaged"
        )
    blocks = {axis: rank + number for number, axis in enumerate(block_map)}
    sizes = dict(enumerate(shape))
    for axis, dimension in blocks.items():
        cells = metadata[order.index(dimension)].get("dense_size", 0)
        if cells < 1 or shape[axis] % cells:
            raise ModelError(
                f"sparsity cuts axis {axis} of {list(shape)} into blocks of {cells}: the file is damaged"
            )
        sizes[dimension], sizes[axis] = cells, shape[axis] // cells
    return order, sizes, blocks


def _expand(metadata: dict[str, Any], nodes: int, size: int, level: int) -> tuple[Array, Array]:
    """The children of all nodes of one level: whose they are, and their index along the level's dimension."""
    if metadata.get("format", 0) == 0:
        if metadata.get("dense_size", 0) != size:
            found = metadata.get("dense_size", 0)
            raise ModelError(
                f"sparsity level {level} is dense with size {found}, expected {size}: the file is damaged"
            )
        return np.repeat(np.arange(nodes), size), np.tile(np.arange(size), nodes)
    segments = np.asarray(metadata.get("array_segments", {}).get("values", ()), np.int64)
    indices = np.asarray(metadata.get("array_indices", {}).get("values", ()), np.int64)
    counts = np.diff(segments)
    whole = len(segments) == nodes + 1 and segments[0] == 0 and segments[-1] == len(indices)
    if not whole or (counts < 0).any() or ((indices < 0) | (indices >= size)).any():
        raise ModelError(
            f"sparsity level {level} has {len(segments)} segments and {len(indices)} indices for {nodes} "
            f"nodes of size {size}, expected {nodes + 1} rising segments and indices below {size}: "
            "the file is damaged"
        )
    return np.repeat(np.arange(nodes), counts), indices


@register("DEQUANTIZE", "DequantizeOptions")
@record
class Dequantize(Op):
    """To float32; what integers mean is known to the Quantized op around this one."""

    axes = Elementwise()
    versions = Versions({DType.INT8: 2, DType.INT16: 3, DType.FLOAT16: 3, DType.INT4: 6})

    def infer(self, x: TensorType) -> TensorType:
        return TensorType(DType.FLOAT32 if x.dtype is DType.FLOAT16 else x.dtype, x.shape)

    def forward(self, x: Array) -> Array:
        return x.astype(np.float32) if x.dtype == np.float16 else x

    def grad_x(self, dy: Array) -> Array:
        return dy

    def decode(self, source: Tensor) -> tuple[Array]:
        """The real numbers of a constant."""
        if source.dtype is DType.FLOAT16:
            return (source.data.astype(np.float32),)
        if source.dtype.numpy is None or source.quantization is None or not source.quantization.scale:
            raise ModelError(
                f"{self.name}: {source} has no scale, or elements that numpy does not know, expected float16 "
                "or 8, 16 or 32 bit integers with a scale"
            )
        return (dequantize(source.data, source.quantization),)

    @classmethod
    def examples(cls) -> Iterable[Example]:
        yield Example(cls(), (random(2, 3),))
        yield Example(cls(), (random(2, 3).astype(np.float16),), differentiable=False)


@register("QUANTIZE", "QuantizeOptions")
@record
class Quantize(Op):
    """Leaves real numbers as they are; the Quantized op around this one rounds them for its output's type."""

    axes = Elementwise()
    versions = Versions(features=(when(2, lambda node, inputs: node.outputs[0].dtype is DType.INT16),))

    def forward(self, x: Array) -> Array:
        return x

    @classmethod
    def examples(cls) -> Iterable[Example]:
        yield Example(cls(), (random(2, 3),), differentiable=False)


@register("SPREAD", internal=True)
@record
class Spread(Op):
    """The dense tensor around a sparse constant's elements; only they are trained, so the pattern stays."""

    shape: tuple[int, ...]
    places: Array = field(repr=False)

    __eq__, __hash__ = object.__eq__, object.__hash__
    axes = Mixes("its places count the elements of the whole tensor")

    def infer(self, values: TensorType) -> TensorType:
        return TensorType(values.dtype, self.shape)

    def forward(self, values: Array) -> Array:
        result = np.zeros(self.shape, values.dtype)
        result.reshape(-1)[self.places] = values
        return result

    def grad_values(self, dy: Array) -> Array:
        return dy.reshape(-1)[self.places]


@register("DENSIFY", "DensifyOptions")
@record
class Densify(Op):
    """The file stores a constant's nonzero elements; a pass decodes them, and in memory all are there."""

    axes = Elementwise()

    def forward(self, x: Array) -> Array:
        return x

    def grad_x(self, dy: Array) -> Array:
        return dy

    def decode(self, source: Tensor) -> tuple[Array]:
        """All elements of a constant; one without sparsity tables is dense already."""
        sparsity = source.carried.get("fields", {}).get("sparsity")
        return (source.data if sparsity is None else densify(self.stored(source), sparsity, source.shape),)

    def spread(self, source: Tensor) -> tuple[Spread, Array] | None:
        """For a sparse constant of floats: its stored elements as float32, and the op that spreads them."""
        sparsity = source.carried.get("fields", {}).get("sparsity")
        if sparsity is None or not source.dtype.is_float:
            return None
        values = self.stored(source).astype(np.float32)
        return Spread(source.shape, places_of(sparsity, source.shape, len(values))), values

    def stored(self, source: Tensor) -> Array:
        """The elements that the file holds."""
        numpy_dtype = source.dtype.numpy
        if source.buffer is None or numpy_dtype is None or source.buffer.nbytes % numpy_dtype.itemsize:
            raise ModelError(
                f"{self.name}: the bytes of {source} are no whole number of elements: the file is damaged"
            )
        if not source.type.is_static or prod(source.shape) > LARGEST_DENSE:
            raise ModelError(
                f"{self.name}: {source} is no constant of a known size below {LARGEST_DENSE} elements"
            )
        return source.buffer.bytes.view(numpy_dtype)

    @classmethod
    def examples(cls) -> Iterable[Example]:
        yield Example(cls(), (random(2, 3),))


LARGEST_DENSE = 1 << 31
"""Elements of a dense constant; a file that claims more lies."""
