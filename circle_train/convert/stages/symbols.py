"""Symbolic sizes of an ONNX model, and the sizes that they are given in the worlds of a conversion."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from circle_train.convert.onnx_file.importer import Dim, Source
from circle_train.errors import ConversionError
from circle_train.ir import DType

BATCH = (2, 3, 1)
IMAGE = (96, 160, 224)
SEQUENCE = (12, 20, 31)
AUDIO = (1024, 1536, 2560)
FIXED = {4: 224, 5: 32}
"""What an open size is fixed to by rank, where it must be; other sequences to 512 floats or 128 integers."""


@dataclass(frozen=True)
class Assignment:
    """Sizes of every symbol: one number, or one per world."""

    sizes: dict[str, tuple[int, ...]]
    fixed: dict[str, int]
    """Symbols that the module will have as these numbers."""

    @property
    def count(self) -> int:
        """Number of worlds; without symbols there is one."""
        return max((len(sizes) for sizes in self.sizes.values()), default=1)

    def shapes(self, dims: tuple[Dim, ...]) -> list[tuple[int, ...]]:
        """The shape in each world."""
        return [
            tuple(
                d if isinstance(d, int) else self.sizes[d][world] if d in self.sizes else self.fixed[d]
                for d in dims
            )
            for world in range(self.count)
        ]

    def signature(self, dims: tuple[Dim, ...]) -> tuple[int, ...]:
        """The shape with -1 for what is open."""
        return tuple(d if isinstance(d, int) else -1 if d in self.sizes else self.fixed[d] for d in dims)

    def file_shape(self, dims: tuple[Dim, ...]) -> tuple[int, ...]:
        """The shape that the file states: 1 for what is open, as TFLite writes it."""
        return tuple(d if isinstance(d, int) else 1 if d in self.sizes else self.fixed[d] for d in dims)


def assignments(model: Source, shapes: dict[str, tuple[int, ...]]) -> Iterator[Assignment]:
    """Ways to treat the symbols, the most general first."""
    fixed = _asked(model, shapes)
    batch, other = _symbols(model, fixed)
    open_batch: dict[str, tuple[int, ...]] = dict.fromkeys(batch, BATCH)
    if other:
        for choice in (SEQUENCE, AUDIO):
            yield Assignment(
                open_batch | {n: IMAGE if rank > 3 else choice for n, (rank, _) in other.items()}, fixed
            )
    pinned = {name: FIXED.get(rank, 512 if dtype.is_float else 128) for name, (rank, dtype) in other.items()}
    yield Assignment(open_batch, fixed | pinned)
    if batch:
        yield Assignment({}, fixed | pinned | dict.fromkeys(batch, 1))


def _asked(model: Source, shapes: dict[str, tuple[int, ...]]) -> dict[str, int]:
    """Symbols that the caller has fixed."""
    fixed: dict[str, int] = {}
    for name, shape in shapes.items():
        if name not in model.inputs:
            raise ConversionError(f"shapes names '{name}', the model's inputs are {', '.join(model.inputs)}")
        _, dims = model.inputs[name]
        if len(dims) != len(shape) or any(
            s < -1 or s == 0 or (isinstance(d, int) and s not in (d, -1))
            for d, s in zip(dims, shape, strict=True)
        ):
            raise ConversionError(
                f"shapes gives '{name}' as {shape}, the model has {dims}; only open sizes can be fixed"
            )
        for dim, size in zip(dims, shape, strict=True):
            if isinstance(dim, str) and size != -1 and fixed.setdefault(dim, size) != size:
                raise ConversionError(
                    f"shapes gives '{name}' as {shape}, where '{dim}' is {size}, but another input's '{dim}' is "
                    f"{fixed[dim]}; give both the same size"
                )
    return fixed


def _symbols(model: Source, fixed: dict[str, int]) -> tuple[list[str], dict[str, tuple[int, DType]]]:
    """Names of batch sizes (any input's first axis), and the others with their input's rank and type."""
    batch: list[str] = []
    other: dict[str, tuple[int, DType]] = {}
    for _, dims in model.inputs.values():
        if dims and isinstance(dims[0], str) and dims[0] not in (*fixed, *batch):
            batch.append(dims[0])
    for dtype, dims in model.inputs.values():
        for dim in dims[1:]:
            if isinstance(dim, str) and dim not in fixed and dim not in batch:
                other.setdefault(dim, (len(dims), dtype))
    return batch, other
