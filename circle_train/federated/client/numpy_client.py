"""The same client for Flower's old interface: `ClientApp(client_fn=…)`, lists of arrays, secure aggregation."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from flwr.app import Context
from flwr.client import Client, NumPyClient

from circle_train.errors import DataError
from circle_train.federated.client.app import Data
from circle_train.federated.client.learner import Learner
from circle_train.federated.client.settings import How
from circle_train.federated.records import names, record_of, values
from circle_train.ir.tensor_type import Array
from circle_train.model import Model, Source
from circle_train.settings.config import TrainConfig


class ListClient(NumPyClient):
    """A learner whose arrays come and go as a list, in the order of `federated.arrays`."""

    def __init__(self, learner: Learner, context: Context) -> None:
        self.learner, self.context = learner, context

    def get_parameters(self, config: dict[str, Any]) -> list[Array]:
        return list(values(self.learner.session).values())

    def fit(self, parameters: list[Array], config: dict[str, Any]) -> tuple[list[Array], int, dict[str, Any]]:
        made = self.learner.train(self.context, self._record(parameters), config)
        assert made.arrays is not None
        metrics = dict(made.metrics)
        return list(made.arrays.values()), int(metrics.pop("num-examples")), metrics

    def evaluate(self, parameters: list[Array], config: dict[str, Any]) -> tuple[float, int, dict[str, Any]]:
        metrics = dict(self.learner.evaluate(self.context, self._record(parameters), config).metrics)
        return float(metrics.pop("loss")), int(metrics.pop("num-examples")), metrics

    def _record(self, parameters: list[Array]) -> Any:
        expected = names(self.learner.session)
        if len(parameters) != len(expected):
            raise DataError(
                f"{len(parameters)} arrays came, expected {len(expected)}: {', '.join(expected[:5])}, …"
            )
        return record_of({n: np.asarray(array) for n, array in zip(expected, parameters, strict=True)})


def numpy_client(
    model: Model | Source, config: TrainConfig | None = None, data: Data | None = None, **how: Any
) -> Callable[[Context], Client]:
    """What `ClientApp(client_fn=…)` takes; arguments as of `client_app`."""
    learner = Learner(model, config, data, How(**how))

    def client_fn(context: Context) -> Client:
        return ListClient(learner, context).to_client()

    return client_fn
