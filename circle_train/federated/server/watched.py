"""A strategy under watch: Flower's own does the work; its replies are judged, its rounds counted, saved, and continued."""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any

import numpy as np
from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Strategy

from circle_train.errors import CheckpointError, DataError, refusing
from circle_train.federated.records import decoded, judged, record_of
from circle_train.federated.server import strategy_state
from circle_train.federated.server.replies import PlaceOf, Replies
from circle_train.federated.server.run import Round, Run
from circle_train.federated.streaming import Sums
from circle_train.ir.tensor_type import Array

Evaluate = Callable[[Mapping[str, Array]], dict[str, float]]
WEIGHT = "num-examples"


@dataclass
class Watch:
    """What is done besides the strategy's work."""

    run: Run
    seed: int
    statistics: frozenset[str]
    """Arrays that are averaged, whatever the strategy does to the others."""
    evaluate: Evaluate
    save: Callable[[Run], None]


class Watched(Strategy):
    """A strategy that goes on where a run stands."""

    def __init__(self, inner: Strategy, watch: Watch) -> None:
        self.inner, self.watch, self.run = inner, watch, watch.run
        self.before = strategy_state.snapshot(inner)
        with self._remembering():
            strategy_state.restore(inner, *watch.run.strategy)
        self.first = watch.run.done
        self.shapes = {name: array.shape for name, array in watch.run.arrays.items()}
        self.weight = setting_of(inner, "weighted_by_key") or WEIGHT
        self.round = Round(self.first + 1)
        self.place_of: PlaceOf = int
        self.started = time.perf_counter()

    def summary(self) -> None:
        self.inner.summary()

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        number = self.first + server_round
        self.place_of = getattr(grid, "place_of", int)
        self.round, self.started = Round(number), time.perf_counter()
        own, besides = self._parted(arrays)
        with sampling(self.watch.seed, number, "train"):
            messages = self.inner.configure_train(number, own, config, grid)
        return self._counted(_completed(messages, besides))

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        judge, averages = (
            Replies(self.round.number, self.shapes, self.weight, self.place_of),
            Sums("statistics"),
        )
        fitting = judge(replies)
        if self.watch.statistics:
            fitting = self._without_statistics(fitting, averages)
        with self._remembering() if self.first else nullcontext():
            arrays, metrics = self.inner.aggregate_train(self.round.number, _listed(fitting, replies))
        self.round.clients, self.round.bytes_up = judge.clients, judge.bytes
        self.round.training = _plain(metrics)
        self.run.refused += judge.refused
        self._tell(judge)
        if arrays is None:
            return None, metrics
        means = {name: mean.astype(np.float32) for name, mean in averages.means().items()}
        own = {name: shape for name, shape in self.shapes.items() if name not in means}
        found = self._judged(arrays, own) | means
        return record_of({name: found[name] for name in self.shapes}), metrics

    def configure_evaluate(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        own, besides = self._parted(arrays)
        with sampling(self.watch.seed, self.round.number, "evaluate"):
            messages = self.inner.configure_evaluate(self.round.number, own, config, grid)
        return self._counted(_completed(messages, besides))

    def aggregate_evaluate(self, server_round: int, replies: Iterable[Message]) -> MetricRecord | None:
        judge = Replies(self.round.number, None, self.weight, self.place_of)
        metrics = self.inner.aggregate_evaluate(self.round.number, _listed(judge(replies), replies))
        self.round.clients_evaluated, self.round.evaluation = judge.clients, _plain(metrics)
        self.run.scores = judge.scores or self.run.scores
        self.run.refused += judge.refused
        self._tell(judge)
        return metrics

    @staticmethod
    def _remembering() -> AbstractContextManager[None]:
        """Where what the strategy remembers comes from a run's file."""
        return refusing(
            CheckpointError, "what the run's file says of its strategy", "remove the file to begin anew"
        )

    def _judged(self, arrays: ArrayRecord, shapes: Mapping[str, tuple[int, ...]]) -> dict[str, Array]:
        """What the strategy made of the replies: no round can begin with weights of another kind."""
        try:
            return judged({name: arrays[name] for name in shapes if name in arrays}, shapes)
        except DataError as error:
            strategy, number = type(self.inner).__name__, self.round.number
            raise DataError(
                f"round {number}: what {strategy} made of the replies is no model: {error}"
            ) from None

    def _tell(self, judge: Replies) -> None:
        """One line for all replies that were left out."""
        if judge.refused:
            first, total = judge.refused[0], len(judge.refused)
            more = f", and {total - 1} more" if total > 1 else ""
            logging.getLogger("flwr").warning(
                "round %d: client %d is left out (%s)%s", first.round, first.client, first.why, more
            )

    def end_round(self, server_round: int, arrays: ArrayRecord) -> MetricRecord | None:
        """After everything else of a round, as `start` calls its evaluate_fn; before the first there is nothing to do."""
        if not server_round:
            return None
        found = {name: decoded(array) for name, array in arrays.items()}
        self.round.server = self.watch.evaluate(found)
        self.round.seconds = time.perf_counter() - self.started
        self.run.end(self.round, found)
        self.run.strategy = strategy_state.changed(self.inner, self.before)
        self.watch.save(self.run)
        return MetricRecord(self.round.server) if self.round.server else None

    def _parted(self, arrays: ArrayRecord) -> tuple[ArrayRecord, ArrayRecord]:
        """What the strategy sees, and what it does not."""
        if not self.watch.statistics:
            return arrays, ArrayRecord()
        groups = [
            {n: a for n, a in arrays.items() if (n in self.watch.statistics) is kind}
            for kind in (False, True)
        ]
        return ArrayRecord(groups[0]), ArrayRecord(groups[1])

    def _without_statistics(self, replies: Iterable[Message], averages: Sums) -> Iterator[Message]:
        for reply in replies:
            if not reply.has_error():
                (key, record), *_ = reply.content.array_records.items()
                own, besides = self._parted(record)
                weight = next(iter(reply.content.metric_records.values()))[self.weight]
                averages.add({name: decoded(array) for name, array in besides.items()}, weight)
                reply.content[key] = own
            yield reply

    def _counted(self, messages: Iterable[Message]) -> Iterable[Message]:
        """The messages, their bytes noted as they leave; a list stays one."""
        return self._counting(messages) if isinstance(messages, Iterator) else list(self._counting(messages))

    def _counting(self, messages: Iterable[Message]) -> Iterator[Message]:
        known: tuple[Any, int] = (None, 0)
        for message in messages:
            content = message.content
            if known[0] is not content:
                known = content, sum(record.count_bytes() for record in content.array_records.values())
            self.round.bytes_down += known[1]
            yield message


@contextmanager
def sampling(seed: int, number: int, purpose: str) -> Iterator[None]:
    """Whom a strategy samples is a function of seed and round, so that a resumed run samples the same ones."""
    before = random.getstate()
    random.seed(f"{seed}/{number}/{purpose}")
    try:
        yield
    finally:
        random.setstate(before)


def _completed(messages: Iterable[Message], besides: ArrayRecord) -> Iterable[Message]:
    """The messages with the arrays that the strategy was not shown."""
    if not besides:
        return messages
    whole = _completing(messages, besides)
    return whole if isinstance(messages, Iterator) else list(whole)


def _completing(messages: Iterable[Message], besides: ArrayRecord) -> Iterator[Message]:
    known: tuple[Any, RecordDict] = (None, RecordDict())
    for message in messages:
        if known[0] is not message.content:
            known = (
                message.content,
                RecordDict(
                    {
                        name: ArrayRecord({**record, **besides})
                        if isinstance(record, ArrayRecord)
                        else record
                        for name, record in message.content.items()
                    }
                ),
            )
        message.content = known[1]
        yield message


def _listed(judged: Iterator[Message], replies: Iterable[Message]) -> Iterable[Message]:
    """As they came: a stream as a stream, a list as a list."""
    return judged if isinstance(replies, Iterator) else list(judged)


def _plain(metrics: MetricRecord | None) -> dict[str, float]:
    return {n: float(v) for n, v in (metrics or {}).items() if not isinstance(v, list)}


def setting_of(strategy: Strategy, name: str) -> Any:
    """A setting of the strategy, or of the one that it wraps."""
    found = getattr(strategy, name, None)
    inner = getattr(strategy, "strategy", None)
    return found if found is not None or inner is None else setting_of(inner, name)
