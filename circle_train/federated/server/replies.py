"""Replies before a strategy sees them: in one order, and those that do not fit named and left out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import isfinite

from flwr.app import Error, Message

from circle_train.errors import DataError
from circle_train.federated.client.app import PLACE, RAISED, WHO
from circle_train.federated.records import judged

LONGEST = 300
"""Characters of a client's error that are kept."""


@dataclass(frozen=True)
class Refused:
    """A client whose reply was left out of a round."""

    round: int
    client: int
    why: str


class Replies:
    """A round's replies as a stream; what was seen of them is counted on the way."""

    def __init__(self, number: int, shapes: Mapping[str, tuple[int, ...]] | None, weight: str) -> None:
        self.round, self.shapes, self.weight = number, shapes, weight
        self.refused: list[Refused] = []
        self.clients = 0
        self.bytes = 0
        self.scores: dict[int, float] = {}
        """By client, the metric that tells most (see `score_of`)."""
        self._metrics: frozenset[str] | None = None

    def __call__(self, replies: Iterable[Message]) -> Iterator[Message]:
        if isinstance(replies, Sequence):
            replies = sorted(replies, key=order)
            kinds = Counter(_metric_names(reply) for reply in replies if reply.has_content())
            self._metrics = max(kinds, key=lambda kind: kinds[kind], default=None)
        for reply in replies:
            judged_reply = self._judged(reply)
            if not judged_reply.has_error():
                self._note(reply)
            yield judged_reply

    def _judged(self, reply: Message) -> Message:
        """The reply, or an error in its place."""
        try:
            if reply.has_error():
                raise DataError(reply.error.reason or f"error {reply.error.code}")
            self._check(reply)
        except DataError as error:
            why = str(error)[:LONGEST]
            self.refused.append(Refused(self.round, client_of(reply), why))
            return Message(metadata=reply.metadata, error=Error(RAISED, why))
        return reply

    def _check(self, reply: Message) -> None:
        content = reply.content
        if len(content.metric_records) != 1:
            raise DataError(f"the reply holds {len(content.metric_records)} MetricRecords, expected one")
        metrics = next(iter(content.metric_records.values()))
        names = frozenset(metrics)
        self._metrics = self._metrics or names
        if names != self._metrics:
            raise DataError(f"its metrics are {sorted(names)}, those of the others {sorted(self._metrics)}")
        for name, value in metrics.items():
            if not all(isfinite(number) for number in (value if isinstance(value, list) else [value])):
                raise DataError(f"its metric '{name}' is {value}, expected finite numbers")
        weight = metrics.get(self.weight)
        if isinstance(weight, list) or weight is None or weight <= 0:
            raise DataError(f"its '{self.weight}' is {weight}, expected a positive number")
        if self.shapes is not None:
            if len(content.array_records) != 1:
                raise DataError(f"the reply holds {len(content.array_records)} ArrayRecords, expected one")
            judged(next(iter(content.array_records.values())), self.shapes)

    def _note(self, reply: Message) -> None:
        self.clients += 1
        self.bytes += sum(record.count_bytes() for record in reply.content.array_records.values())
        metrics = next(iter(reply.content.metric_records.values()))
        if self.shapes is None:
            self.scores[client_of(reply)] = float(metrics[score_of(metrics, self.weight)])


def client_of(reply: Message) -> int:
    """The client's place in the fleet where it says one, else its node."""
    said = reply.content.config_records.get(WHO) if reply.has_content() else None
    return int(said[PLACE] if said and PLACE in said else reply.metadata.src_node_id)


def score_of(metrics: Iterable[str], weight: str) -> str:
    """The first metric that is neither the loss nor the weight; the loss where there is none."""
    others = [name for name in metrics if name not in ("loss", weight)]
    return others[0] if others else "loss"


def order(reply: Message) -> tuple[int, int]:
    """Sums of floats depend on the order; this one is the same in every kind of run."""
    return client_of(reply), reply.metadata.src_node_id


def _metric_names(reply: Message) -> frozenset[str]:
    return frozenset(name for record in reply.content.metric_records.values() for name in record)
