"""Federated averaging of a stream of replies: one sum, however many clients."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np
from flwr.app import ArrayRecord, Message, MetricRecord, RecordDict
from flwr.serverapp.exception import InconsistentMessageReplies
from flwr.serverapp.strategy import FedAvg
from flwr.serverapp.strategy.strategy_utils import aggregate_metricrecords

from circle_train.federated.records import decoded, record_of
from circle_train.ir.tensor_type import Array

Aggregate = Callable[[list[RecordDict], str], MetricRecord]


class StreamingFedAvg(FedAvg):
    """Flower's FedAvg, with its arguments, that adds each reply to one sum in float64 and lets it go.

    On a LocalGrid memory then does not grow with the number of clients.
    """

    def _construct_messages(
        self, record: RecordDict, node_ids: list[int], message_type: str
    ) -> Iterable[Message]:
        """One after the other, in the order of the nodes."""
        return (Message(record, node, message_type) for node in sorted(node_ids))

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """Weighted means of arrays and metrics."""
        sums = Sums("arrays")
        metrics = self._aggregated(replies, self.train_metrics_aggr_fn, sums)
        if not sums.weight:
            return None, metrics
        return record_of({n: np.asarray(mean, np.float32) for n, mean in sums.means().items()}), metrics

    def aggregate_evaluate(self, server_round: int, replies: Iterable[Message]) -> MetricRecord | None:
        """Weighted means of metrics."""
        return self._aggregated(replies, self.evaluate_metrics_aggr_fn, None)

    def _aggregated(
        self, replies: Iterable[Message], aggregate: Aggregate, arrays: Sums | None
    ) -> MetricRecord | None:
        """One pass; a function of the user's that aggregates metrics is given all of them at its end."""
        key, metrics, contents = self.weighted_by_key, Sums("metrics"), []
        for content in (message.content for message in replies if message.has_content()):
            found = dict(_only(content.metric_records, "MetricRecord"))
            if key not in found:
                raise InconsistentMessageReplies(f"a reply's MetricRecord holds no '{key}'")
            if arrays is not None:
                record = _only(content.array_records, "ArrayRecord")
                arrays.add({name: decoded(array) for name, array in record.items()}, found[key])
            if aggregate is aggregate_metricrecords:
                metrics.add({n: np.asarray(v, np.float64) for n, v in found.items() if n != key}, found[key])
            else:
                contents.append(RecordDict({"metrics": MetricRecord(found)}))
        if contents:
            return aggregate(contents, key)
        return (
            MetricRecord({n: mean.tolist() for n, mean in metrics.means().items()})
            if metrics.weight
            else None
        )


class Sums:
    """Weighted sums of arrays by name, in float64, in the order they come."""

    def __init__(self, what: str) -> None:
        self.what, self.weight = what, 0.0
        self._sums: dict[str, Array] = {}
        self._product: dict[str, Array] = {}

    def add(self, arrays: Mapping[str, Array], weight: float) -> None:
        if not self._sums:
            self._sums = {name: np.zeros(array.shape, np.float64) for name, array in arrays.items()}
            self._product = {name: np.empty(array.shape, np.float64) for name, array in arrays.items()}
        sums = self._sums
        if arrays.keys() != sums.keys() or any(sums[n].shape != a.shape for n, a in arrays.items()):
            raise InconsistentMessageReplies(
                f"a reply's {self.what} have other names or shapes than the first one's"
            )
        for name, array in arrays.items():
            self._sums[name] += np.multiply(array, weight, out=self._product[name], dtype=np.float64)
        self.weight += weight

    def means(self) -> dict[str, Array]:
        """Of what came; nothing of nothing."""
        return {name: total / self.weight for name, total in self._sums.items()}


def _only(records: Mapping[str, Any], kind: str) -> Mapping[str, Any]:
    if len(records) != 1:
        raise InconsistentMessageReplies(f"a reply holds {len(records)} {kind}s, expected one")
    found: Mapping[str, Any] = next(iter(records.values()))
    return found
