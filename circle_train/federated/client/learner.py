"""What a client does with a round's arrays: train on its data, evaluate, say what it has."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from circle_train.compile.program import Mode
from circle_train.data.dataset import Dataset, Stream
from circle_train.data.opening import open_any
from circle_train.errors import ConfigError, DataError
from circle_train.federated.client import remembered
from circle_train.federated.client.frozen import FrozenResults
from circle_train.federated.client.lesson import is_ready, learn
from circle_train.federated.client.session import ClientSession
from circle_train.federated.client.settings import Asked, How, asked
from circle_train.federated.records import judged as judged_record, names, put, values
from circle_train.ir.tensor_type import Array
from circle_train.model import Model, Source
from circle_train.settings.config import TrainConfig


@dataclass
class Outcome:
    """What goes back."""

    metrics: dict[str, int | float]
    arrays: dict[str, Array] | None = None


class Learner:
    """A model, settings and data; the session is made at first use, one for all clients of the process."""

    def __init__(
        self, model: Model | Source, config: TrainConfig | None, data: Callable[[Any], Any] | None, how: How
    ) -> None:
        self.model, self.config, self.data, self.how = model, config, data, how
        self._session: ClientSession | None = None
        self._frozen: FrozenResults | None = None
        self._received: tuple[list[bytes], dict[str, Array]] = ([], {})

    def __getstate__(self) -> dict[str, Any]:
        """Without the session: another process opens its own."""
        return {**self.__dict__, "_session": None, "_frozen": None, "_received": ([], {})}

    @property
    def session(self) -> ClientSession:
        if self._session is None:
            self._session = ClientSession(self.model, self.config, threads=self.how.threads)
        return self._session

    @property
    def frozen(self) -> FrozenResults:
        """What is kept of the frozen beginning's results."""
        if self._frozen is None:
            self._frozen = FrozenResults(self.session, self.how.keep_frozen)
        return self._frozen

    def train(self, context: Any, arrays: Any, config: Mapping[str, Any]) -> Outcome:
        session, how = self.session, self.how
        wish = asked(config, context.run_config, how.epochs or session.config.epochs or 1)
        data = self._open(context, "train")
        self._begin(context, arrays, wish)
        with self.frozen.of(client_number(context), Mode.TRAIN, data) as fed:
            last = self._learn(fed, wish.epochs)
        remembered.keep(session, context.state, how.remember)
        return Outcome({"num-examples": count(data), **last}, values(session))

    def _learn(self, data: Dataset | Stream, epochs: int) -> dict[str, float]:
        """Loss and metrics of the last epoch."""
        session, shuffle = self.session, self.how.shuffle
        if is_ready(data, session):
            return learn(session, data, epochs, shuffle)
        history = session.fit(data, epochs=epochs, shuffle=shuffle, verbose=0, keep_frozen=False)
        return {name: series[-1] for name, series in history.history.items() if series}

    def evaluate(self, context: Any, arrays: Any, config: Mapping[str, Any]) -> Outcome:
        session = self.session
        data = self._open(context, "evaluate")
        self._begin(context, arrays, asked(config, context.run_config, 1))
        with self.frozen.of(client_number(context), Mode.EVALUATE, data) as fed:
            found = session.evaluate(fed)
        return Outcome({"num-examples": count(data), **found})

    def query(self, context: Any, arrays: Any, config: Mapping[str, Any]) -> Outcome:
        """What a round would have of this client, and take of it."""
        plan = self.session.plan
        parameters = sum(plan.parameters.values())
        data = self._open(context, "train")
        return Outcome(
            {"num-examples": count(data), "parameters": parameters, "step-bytes": plan.total_bytes}
        )

    def _begin(self, context: Any, arrays: Any, wish: Asked) -> None:
        """The round's weights, and nothing of whoever trained before but what this client remembers."""
        if arrays is None:
            raise DataError("the message holds no arrays, expected one ArrayRecord with the model's")
        session, how = self.session, self.how
        put(session, self._decoded(arrays))
        place = [client_number(context)]
        if "position" not in how.remember:
            place.append(wish.round)
        seed = int(np.random.SeedSequence([how.seed, *place]).generate_state(1)[0])
        session.begin(seed, wish.learning_rate, wish.proximal_mu)
        remembered.recall(session, context.state, how.remember)

    def _decoded(self, record: Any) -> dict[str, Array]:
        """The record's numbers; the same record for the next client is not read again."""
        payloads = [array.data for array in record.values()]
        known, found = self._received
        if len(known) != len(payloads) or any(a is not b for a, b in zip(known, payloads, strict=True)):
            session = self.session
            found = judged_record(record, {name: session.parameters[name].shape for name in names(session)})
            self._received = payloads, found
        return found

    def _open(self, context: Any, part: str) -> Dataset | Stream:
        if self.data is None:
            raise ConfigError("client_app: no data; give data=function of the context that returns (x, y)")
        given = self.data(context)
        if isinstance(given, Mapping):
            given = _part_of(given, part)
        x, y = given if isinstance(given, tuple) and len(given) == 2 else (given, None)
        program = self.session.program
        if isinstance(x, (Dataset, Stream)) or not getattr(x, "is_lasting", False):
            return open_any(x, y, program.inputs, program.targets, self.session.model.description)
        like = np.broadcast_to(np.float32(0), x.shape)  # samples are made when they are asked for
        opened = open_any(like, y, program.inputs, program.targets, None)
        return Dataset([x], opened.targets) if isinstance(opened, Dataset) else opened


def _part_of(given: Mapping[str, Any], part: str) -> Any:
    """The samples to train on, or to judge by."""
    if "train" not in given:
        raise DataError(
            f"data(context) gave a dict of {', '.join(map(repr, given)) or 'nothing'}; "
            "expected (x, y), or 'train' and perhaps 'evaluate' with such a pair each"
        )
    if (found := given.get(part, given["train"])) is None:
        raise DataError(f"the client has no data to {part}")
    return found


def client_number(context: Any) -> int:
    """Which client it is, in the same words in every kind of run: its partition, else its node."""
    return int(context.node_config.get("partition-id", context.node_id))


def count(data: Dataset | Stream) -> int:
    """Samples of a pass."""
    if isinstance(data, Dataset):
        return len(data)
    raise DataError("the client's data are a stream, whose samples nobody counted; give arrays or files")
