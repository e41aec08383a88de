"""What may be trained: the last layers, the first, any block, biases or scales alone, and sets that Fisher proposes; where
there is no memory for one, a share of its input channels.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain, pairwise

from circle_train.finetuning.choosing.layers import Layer
from circle_train.record import record

BLOCKS = 4
"""Into which a deep network is cut; of one with no more than SINGLE layers each layer is a block."""
SINGLE = 6
WEIGHT_RATES = (1e-4, 1e-3, 5e-3)
LIGHT_RATES = (1e-3, 4e-3, 1e-2)
"""Of what has few numbers: heads, biases, scales."""
EVERYTHING = "everything"
LIGHT = 0.1
"""The share of all numbers up to which a set counts as one of few."""
PARTS = {0.5: "half of their channels", 0.25: "a quarter of their channels"}
"""Shares of their input channels that layers may train."""


@record
class Candidate:
    """Parameters that could be trained together."""

    what: str
    names: tuple[str, ...]
    rates: tuple[float, ...]


def candidates(
    layers: Sequence[Layer], head: Sequence[str], picked: Sequence[Sequence[Layer]]
) -> list[Candidate]:
    """Each set once, under the first name that it has; a new head is trained with all of them."""
    total = sum(layer.elements for layer in layers)
    found: dict[frozenset[str], Candidate] = {}
    for what, names, is_light in chain(_standard(layers), _picked(picked, total)):
        both = tuple(dict.fromkeys((*names, *head)))
        if names and frozenset(both) not in found:
            found[frozenset(both)] = Candidate(what, both, LIGHT_RATES if is_light else WEIGHT_RATES)
    return list(found.values())


def narrowed(candidate: Candidate, layers: Sequence[Layer]) -> Iterator[Candidate]:
    """The same with half and with a quarter of the channels; the last of all layers, which may be a new head, learns whole."""
    total, trained = sum(layer.elements for layer in layers), set(candidate.names)
    for share, which in PARTS.items():
        chosen = [layer for layer in layers if trained.issuperset(layer.names)]
        few = [layer if layer is layers[-1] else layer.part(share) for layer in chosen]
        if any(layer.share < 1 for layer in few):
            rates = LIGHT_RATES if _is_light(few, total) else WEIGHT_RATES
            yield Candidate(f"{candidate.what}, {which}", names(few), rates)


def _standard(layers: Sequence[Layer]) -> Iterator[tuple[str, tuple[str, ...], bool]]:
    total, count = sum(layer.elements for layer in layers), len(layers)
    yield "last layer", names(layers[-1:]), True
    for number in _numbers(count):
        yield f"last {number} layers", names(layers[-number:]), _is_light(layers[-number:], total)
    yield "first layer", names(layers[:1]), _is_light(layers[:1], total)
    for first, end in _blocks(count):
        block = layers[first:end]
        what = f"layer {first + 1}" if end == first + 1 else f"layers {first + 1} to {end}"
        yield f"{what} of {count}", names(block), _is_light(block, total)
    yield "biases", tuple(n for layer in layers for n in layer.biases), True
    yield "scales and shifts", tuple(n for layer in layers for n in layer.scales), True
    yield EVERYTHING, names(layers), False


def _picked(sets: Sequence[Sequence[Layer]], total: int) -> Iterator[tuple[str, tuple[str, ...], bool]]:
    for chosen in sets:
        places = ", ".join(str(layer.place) for layer in chosen)
        which = "".join({f", {PARTS[layer.share]}" for layer in chosen if layer.share < 1})
        yield f"picked{which}: operators {places}", names(chosen), _is_light(chosen, total)


def names(layers: Sequence[Layer]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(name for layer in layers for name in layer.names))


def _numbers(count: int) -> list[int]:
    """Doubling, less than all."""
    return [2**power for power in range(1, 10) if 2**power < count]


def _blocks(count: int) -> list[tuple[int, int]]:
    pieces = count if count <= SINGLE else BLOCKS
    cuts = [count * piece // pieces for piece in range(pieces + 1)]
    return list(pairwise(cuts))


def _is_light(layers: Sequence[Layer], total: int) -> bool:
    return sum(layer.elements for layer in layers) <= LIGHT * total
