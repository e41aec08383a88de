"""What activations are: ranges, distributions and means, gathered batch by batch in bounded memory."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence

import numpy as np

from circle_train.errors import DataError
from circle_train.ir import DType, Tensor
from circle_train.ir.tensor_type import Array
from circle_train.quantize.plan import Range
from circle_train.quantize.scales import affine

BINS = 2048
"""Of a distribution."""
COUNTED = 1 << 16
"""Numbers of a tensor that enter it from one batch, evenly spread."""
NARROWEST, TRIALS = 0.25, 64
"""How much of a range is tried in how many steps for the smallest error."""
Batches = Callable[[], Iterable[Sequence[Array]]]
"""For each batch what the observed tensors hold; begins anew when called."""
MASKED = -1000.0
"""A row whose largest number is not above it is masked as a whole, and says nothing of the others."""


Narrow = Callable[["dict[Tensor, Observed]"], None]


class Observed:
    """What a tensor held over all samples."""

    def __init__(self, tensor: Tensor) -> None:
        self.name = tensor.name
        self.low, self.high, self.top = np.inf, -np.inf, np.inf
        """The least and the largest number, and the least of the rows' largest."""
        self.counts = np.zeros(BINS, np.int64)
        self.rows = 0
        self.sums: Array | None = None
        """Of all samples, place by place; None where they are of different sizes."""

    def see(self, values: Array) -> None:
        """Its extremes, and the sum of each channel."""
        if not values.size:
            return
        low, high = float(values.min()), float(values.max())
        if not np.isfinite((low, high)).all():
            raise DataError(
                f"calibration: '{self.name}' becomes NaN or infinite on these samples; give samples as the model takes them, "
                "in its scale and without gaps"
            )
        self.low, self.high = min(self.low, low), max(self.high, high)

    def see_rows(self, values: Array) -> None:
        """How low the largest number of a row may be, but for rows that are masked."""
        tops = values.max(axis=-1) if values.size else np.zeros(0)
        self.top = min(self.top, float(tops.min(initial=np.inf, where=tops > MASKED)))

    def add(self, values: Array) -> None:
        """Samples to the mean of all."""
        if not values.ndim or (self.rows and (self.sums is None or self.sums.shape != values.shape[1:])):
            self.sums, self.rows = None, 1
            return
        self.rows += len(values)
        self.sums = values.sum(axis=0, dtype=np.float64) + (0 if self.sums is None else self.sums)

    def count(self, values: Array) -> None:
        """How its numbers lie between the extremes."""
        if self.high > self.low:
            some = values.reshape(-1)[:: max(values.size // COUNTED, 1)].astype(np.float64)
            self.counts += np.histogram(some, BINS, (self.low, self.high))[0]

    @property
    def mean(self) -> Array | None:
        """Of the samples."""
        return None if self.sums is None or not self.rows else self.sums / self.rows

    @property
    def centres(self) -> Array:
        """Of the bins."""
        return self.low + (np.arange(BINS) + 0.5) * ((self.high - self.low) / BINS)


def observe(
    tensors: Sequence[Tensor], averaged: Collection[Tensor], batches: Batches, with_counts: bool,
    rows: Collection[Tensor] = (), narrow: Narrow = lambda found: None,
) -> dict[Tensor, Observed]:  # fmt: skip
    """Run over the samples: once for extremes, the means of some and the rows of others; once more for distributions between
    what `narrow` makes of the extremes."""
    found = {tensor: Observed(tensor) for tensor in tensors}
    seen = False
    for values in batches():
        seen = True
        for (tensor, one), array in zip(found.items(), values, strict=True):
            one.see(array)
            if tensor in averaged:
                one.add(array)
            if tensor in rows:
                one.see_rows(array)
    if not seen:
        raise DataError("calibration holds no samples; give a hundred or so, as the model takes them")
    narrow(found)
    for values in batches() if with_counts else ():
        for one, array in zip(found.values(), values, strict=True):
            one.count(array)
    return found


def range_of(one: Observed, how: str, percentile: float, dtype: DType) -> Range:
    """What the scale is to cover."""
    if one.low > one.high:
        return 0.0, 0.0
    if how == "minmax" or not one.counts.any():
        return one.low, one.high
    return between(one, percentile) if how == "percentile" else best(one, dtype)


def between(one: Observed, percentile: float) -> Range:
    """Without the outermost numbers on either side."""
    share = np.cumsum(one.counts) / one.counts.sum()
    step = (one.high - one.low) / BINS
    cut = 1 - percentile / 100
    below = int(np.searchsorted(share, cut, side="right"))
    above = int(np.searchsorted(share, 1 - cut))
    return one.low + below * step, min(one.low + (above + 1) * step, one.high)


def best(one: Observed, dtype: DType) -> Range:
    """The range of the smallest squared error, one end after the other."""
    low, high = one.low, one.high
    parts = np.linspace(NARROWEST, 1.0, TRIALS)
    weights, centres = one.counts[one.counts > 0].astype(np.float64), one.centres[one.counts > 0]

    def error(low: float, high: float) -> float:
        made = affine(low, high, dtype)
        limits = np.iinfo(dtype.numpy)
        scale, zero = made.scale[0], made.zero_point[0]
        stored = np.clip(np.rint(centres / scale) + zero, limits.min, limits.max)
        return float((weights * ((stored - zero) * scale - centres) ** 2).sum())

    for _ in range(2):
        high = min((high, *(parts * one.high)), key=lambda end: error(low, end)) if one.high > 0 else high
        low = min((low, *(parts * one.low)), key=lambda end: error(end, high)) if one.low < 0 else low
    return low, high
