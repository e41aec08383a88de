"""Which layers together have most to say for their bytes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from circle_train.finetuning.choosing.layers import Layer

BINS = 400
"""Into which the bytes are rounded, upwards."""
SHARES = (1.0, 0.25)
"""Of the room that there is: the sets that are proposed."""
FEW = 0.25
"""Of the input channels, that layers train so that more of them find room where it is short."""


def propose(layers: Sequence[Layer], information: Mapping[int, float], room: int | None) -> list[list[Layer]]:
    """One set for each share of the room, and where that is not half of what all take one of layers that train few channels."""
    half = sum(layer.nbytes for layer in layers) // 2
    is_short = room is not None and room < half
    room = room if room is not None and is_short else half
    found = [knapsack(layers, information, share * room) for share in SHARES]
    if is_short:
        few = [layer.part(FEW) if layer.has_channels else layer for layer in layers]
        found.append(knapsack(few, information, room))
    return [chosen for chosen in found if chosen]


def knapsack(layers: Sequence[Layer], information: Mapping[int, float], room: float) -> list[Layer]:
    """The layers of most information within so many bytes, each as it is or not at all."""
    if room <= 0:
        return []
    best = np.zeros(BINS + 1)
    taken = np.zeros((len(layers), BINS + 1), bool)
    sizes = [max(int(np.ceil(layer.nbytes / room * BINS)), 1) for layer in layers]
    for row, (layer, bins) in enumerate(zip(layers, sizes, strict=True)):
        if bins > BINS:
            continue
        value = layer.share * information.get(layer.place, 0.0)
        with_it = np.full(BINS + 1, -1.0)
        with_it[bins:] = best[: BINS + 1 - bins] + value
        taken[row] = with_it > best
        best = np.maximum(best, with_it)
    chosen, left = [], BINS
    for row in range(len(layers) - 1, -1, -1):
        if taken[row, left]:
            chosen.append(layers[row])
            left -= sizes[row]
    return chosen[::-1]
