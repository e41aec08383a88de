"""Replies before a strategy sees them: in one order, and those that do not fit named and left out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from math import isfinite
from typing import Any

from flwr.app import ArrayRecord, Error, Message, MetricRecord

from circle_train.errors import DataError
from circle_train.federated.client.app import PLACE, RAISED, WHO
from circle_train.federated.records import judged

LONGEST = 300
"""Characters of a client's error that are kept."""
VOTING = 5
"""Of a stream of replies, how many of the first say which metrics all have; of a list all do."""
MOST = 2**53
"""What a client may count: more would drown the others, or overflow."""


Kinds = frozenset[tuple[str, int | None]]
"""Names of metrics; of lists, how many numbers they hold."""
PlaceOf = Callable[[int], int]
"""A client's place in the fleet, of its node."""


@dataclass(frozen=True)
class Refused:
    """A client whose reply was left out of a round."""

    round: int
    client: int
    why: str


class Replies:
    """A round's replies as a stream; what was seen of them is counted on the way."""

    def __init__(
        self, number: int, shapes: Mapping[str, tuple[int, ...]] | None, weight: str, place_of: PlaceOf = int
    ) -> None:
        self.round, self.shapes, self.weight, self.place_of = number, shapes, weight, place_of
        self.refused: list[Refused] = []
        self.clients = 0
        self.bytes = 0
        self.scores: dict[int, float] = {}
        """By client, the metric that tells most (see `score_of`)."""
        self._metrics: Kinds | None = None

    def __call__(self, replies: Iterable[Message]) -> Iterator[Message]:
        if isinstance(replies, Sequence):
            replies = sorted(replies, key=order)
        rest = iter(replies)
        first = list(rest if isinstance(replies, Sequence) else islice(rest, VOTING))
        kinds = Counter(_kinds_in(reply) for reply in first if reply.has_content())
        self._metrics = max(kinds, key=lambda kind: kinds[kind], default=None)
        first.reverse()
        while first:  # none is kept alive once it is out
            yield self._judged(first.pop())
        for reply in rest:
            yield self._judged(reply)

    def _judged(self, reply: Message) -> Message:
        """The reply, or an error in its place."""
        try:
            if reply.has_error():
                raise DataError(reply.error.reason or f"error {reply.error.code}")
            self._take(reply)
        except (DataError, OverflowError) as error:
            why = str(error)[:LONGEST]
            self.refused.append(Refused(self.round, client_of(reply, self.place_of), why))
            return Message(metadata=reply.metadata, error=Error(RAISED, why))
        return reply

    def _take(self, reply: Message) -> None:
        """Look at it whole, then note what it holds."""
        metrics = _only(reply, MetricRecord)
        self._check(metrics)
        if self.shapes is None:
            score = metrics.get(score_of(metrics, self.weight))
            if isinstance(score, (int, float)):
                self.scores[client_of(reply)] = float(score)
        else:
            arrays = _only(reply, ArrayRecord)
            judged(arrays, self.shapes)
            self.bytes += arrays.count_bytes()
        self.clients += 1

    def _check(self, metrics: Mapping[str, Any]) -> None:
        found = _kinds_of(metrics)
        self._metrics = self._metrics or found
        if found != self._metrics:
            raise DataError(f"its metrics are {_told(found)}, those of the others {_told(self._metrics)}")
        for name, value in metrics.items():
            if not all(isfinite(number * MOST) for number in (value if isinstance(value, list) else [value])):
                raise DataError(f"its metric '{name}' is {value}, expected finite numbers")
        weight = metrics.get(self.weight)
        if isinstance(weight, list) or weight is None or not 0 < weight <= MOST:
            raise DataError(f"its '{self.weight}' is {weight}, expected a positive number up to 2^53")


def _only(reply: Message, kind: type[Any]) -> Any:
    """The reply's one record of a kind."""
    found = [record for record in reply.content.values() if isinstance(record, kind)]
    if len(found) != 1:
        raise DataError(f"the reply holds {len(found)} {kind.__name__}s, expected one")
    return found[0]


def client_of(reply: Message, place_of: PlaceOf = int) -> int:
    """The client's place in the fleet where it says one, else what its node's is."""
    said = reply.content.config_records.get(WHO) if reply.has_content() else None
    place = said.get(PLACE) if said else None
    return place if type(place) is int else place_of(reply.metadata.src_node_id)


def score_of(metrics: Iterable[str], weight: str) -> str:
    """The first metric that is neither the loss nor the weight; the loss where there is none."""
    others = [name for name in metrics if name not in ("loss", weight)]
    return others[0] if others else "loss"


def order(reply: Message) -> tuple[int, int]:
    """Sums of floats depend on the order; this one is the same in every kind of run."""
    return client_of(reply), reply.metadata.src_node_id


def _kinds_of(metrics: Mapping[str, Any]) -> Kinds:
    return frozenset((n, len(value) if isinstance(value, list) else None) for n, value in metrics.items())


def _kinds_in(reply: Message) -> Kinds:
    return frozenset().union(*(_kinds_of(record) for record in reply.content.metric_records.values()))


def _told(kinds: Kinds) -> list[str]:
    return sorted(name if count is None else f"{count} × {name}" for name, count in kinds)
