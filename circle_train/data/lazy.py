"""Arrays whose samples are read when they are asked for."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Protocol, TypeVar

import numpy as np

from circle_train.errors import DataError
from circle_train.format.metadata.description import Description
from circle_train.ir import Tensor
from circle_train.ir.tensor_type import Array
from circle_train.ops.numeric.quantize import quantize

THREADS = 2
"""That decode; a batch is decoded while the one before is trained."""


Cut = TypeVar("Cut")
Taken = TypeVar("Taken")


def _threads(count: int) -> Any:
    from concurrent.futures import ThreadPoolExecutor  # with all of logging: when there are files to decode

    return ThreadPoolExecutor(count)


def ahead(take: Callable[[Cut], Taken], cuts: Iterable[Cut]) -> Iterator[Taken]:
    """What is taken at each cut, the next one while the present one is used."""
    with _threads(1) as pool:
        waiting = None
        for cut in cuts:
            following = pool.submit(take, cut)
            if waiting is not None:
                yield waiting.result()
            waiting = following
        if waiting is not None:
            yield waiting.result()


Mix = Callable[[int], tuple[int, float]]
"""For each place, another sample that is laid over it, and its own share of the two."""


class Decoder(Protocol):
    """Where samples come from (see labelled.Labelled)."""

    @property
    def items(self) -> Sequence[Any]: ...

    def shape(self, how: Description) -> tuple[int, ...]: ...

    def decode(self, item: Any, how: Description, random: np.random.Generator | None) -> Array: ...


class Lazy:
    """An array for a model's input: its length, shape and type, and entries decoded at each access.

    With `variants` every sample is there so many times, each time varied otherwise, but the same in each epoch; with -1 once,
    and varied otherwise in each epoch.
    """

    def __init__(
        self,
        source: Decoder,
        tensor: Tensor,
        how: Description,
        variants: int,
        seed: int,
        mix: Mix | None = None,
    ) -> None:
        self.source, self.how, self.seed, self.mix = source, how, seed, mix
        self.variants = variants
        self.quantization = tensor.quantization if not tensor.dtype.is_float else None
        self.element = tensor.dtype
        dtype = tensor.dtype.numpy
        if dtype is None:
            raise DataError(f"input '{tensor.name}' holds {tensor.dtype.name}, expected numbers")
        self.dtype = dtype
        self.is_first = _channels_first(tensor.shape, how)
        sizes = tensor.shape[1:] if tensor.shape_signature is None else tensor.shape_signature[1:]
        self.sample = sizes if min(sizes, default=1) > 0 else None
        self.epoch = 0
        """Which one asks; what samples of -1 variants look like is a function of it."""
        self.shape = (len(source.items) * max(variants, 1), *self._sample(0).shape)

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def is_lasting(self) -> bool:
        """Whether a sample is the same in every epoch."""
        return self.variants >= 0

    def __len__(self) -> int:
        return len(self.source.items) * max(self.variants, 1)

    def __getitem__(self, indices: Any) -> Array:
        places = np.arange(len(self))[indices]
        if places.ndim == 0:
            one: Array = self[places[None]][0]
            return one
        samples = np.empty((len(places), *self.shape[1:]), self.dtype)

        def fill(number: int) -> None:
            samples[number] = self._sample(int(places[number]))

        if len(places) < 2 * THREADS:
            for number in range(len(places)):
                fill(number)
            return samples
        with _threads(min(THREADS, os.cpu_count() or 1)) as pool:
            for _ in pool.map(fill, range(len(places))):  # which raises what a decoder raised
                pass
        return samples

    def _sample(self, place: int) -> Array:
        item = self.source.items[place // max(self.variants, 1)]
        random = None
        if self.variants:
            random = np.random.default_rng([self.seed, place, self.epoch if self.variants < 0 else 0])
        values = self.source.decode(item, self.how, random)
        if self.mix is not None:
            partner, share = self.mix(place)
            other = self.source.decode(self.source.items[partner], self.how, random)
            values = share * np.asarray(values, np.float32) + (1 - share) * np.asarray(other, np.float32)
        return self._as_input(normalised(values, self.how))

    def _as_input(self, values: Array) -> Array:
        """In the model's layout and type."""
        if self.is_first:
            values = np.moveaxis(values, -1, 0)
        values = values.reshape(values.shape if self.sample is None else self.sample)
        if self.quantization is not None:
            return quantize(values, self.quantization, self.element)
        return np.ascontiguousarray(values, self.dtype)


def normalised(values: Array, how: Description) -> Array:
    """(value - mean) / std, for all channels or for each."""
    if how.mean is None or how.std is None:
        return values if how.kind == "text" else values.astype(np.float32)
    mean, std = np.array(how.mean, np.float32), np.array(how.std, np.float32)
    if {mean.size, std.size} - {1, *values.shape[-1:]}:
        raise DataError(
            f"samples are normalised by {max(mean.size, std.size)} numbers, but have {values.shape[-1]} channels; give one "
            "for all or one for each"
        )
    scaled: Array = (values - mean) / std
    return scaled.astype(np.float32)


def _channels_first(shape: tuple[int, ...], how: Description) -> bool:
    """Whether images lie channel by channel."""
    return how.kind == "image" and len(shape) == 4 and shape[1] == how.channels != shape[3]
