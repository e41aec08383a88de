"""A Flower client that needs no code: a model, its settings, and a function that gives each client its data."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from flwr.app import ArrayRecord, ConfigRecord, Context, Error, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

from circle_train.errors import CircleTrainError
from circle_train.federated.client.learner import Learner, Outcome
from circle_train.federated.client.settings import How
from circle_train.federated.records import record_of
from circle_train.model import Model, Source
from circle_train.settings.config import TrainConfig

Data = Callable[[Context], Any]
WHO, PLACE = "client", "partition-id"
"""The record that says which client replies, and what the place in the fleet is called."""
RAISED = 2
"""Flower's code for a client that raised."""


def client_app(
    model: Model | Source,
    config: TrainConfig | None = None,
    data: Data | None = None,
    *,
    mods: Sequence[Any] = (),
    **how: Any,
) -> ClientApp:
    """A Flower ClientApp that trains and evaluates this model on what `data(context)` gives.

    Args:
        model: a path, package, or loaded model; opened once in each process, whoever the client is.
        config: what and how to train; None takes the settings that the file or package carries.
        data: for a Flower context (x, y), of whatever `fit` takes, or {"train": (x, y), "evaluate": (x, y)}.
        mods: Flower's, for messages that train.
        how: settings of `How`: epochs, shuffle, seed, remember, keep_frozen, threads.
    """
    learner = Learner(model, config, data, How(**how))
    app = ClientApp()
    app.circle_train = learner

    @app.train(mods=list(mods))
    def train(message: Message, context: Context) -> Message:
        return _reply(message, context, learner.train)

    @app.evaluate()
    def evaluate(message: Message, context: Context) -> Message:
        return _reply(message, context, learner.evaluate)

    @app.query()
    def query(message: Message, context: Context) -> Message:
        return _reply(message, context, learner.query)

    return app


def _asked(content: RecordDict) -> tuple[dict[str, Any], str, ArrayRecord | None]:
    """The first record of settings, and the first of arrays with its name."""
    records = list(content.items())
    settings = next((record for _, record in records if isinstance(record, ConfigRecord)), None)
    arrays = ((key, record) for key, record in records if isinstance(record, ArrayRecord))
    return dict(settings.items()) if settings is not None else {}, *next(arrays, ("arrays", None))


def _reply(message: Message, context: Context, work: Callable[..., Outcome]) -> Message:
    """What the work gave: one record of arrays where it changed some, one of metrics; an error's sentence where it failed."""
    try:
        config, key, arrays = _asked(message.content)
        outcome = work(context, arrays, config)
    except CircleTrainError as error:
        return Message(Error(RAISED, f"{type(error).__name__}: {error}"), reply_to=message)
    content = RecordDict({"metrics": MetricRecord(outcome.metrics)})
    if outcome.arrays is not None:
        content[key] = record_of(outcome.arrays)
    place = context.node_config.get(PLACE)
    if place is not None:
        content[WHO] = ConfigRecord({PLACE: int(place)})
    return Message(content, reply_to=message)
