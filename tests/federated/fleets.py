"""Small fleets that the tests of this room share."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import circle_train as ct

MODEL = Path(__file__).resolve().parents[1] / "data/mlp.circle"
CONFIG = ct.TrainConfig(
    loss="mse", optimizer=ct.optimizers.SGD(learning_rate=0.05), batch_size=4, metrics=["mae"]
)
CLIENTS = 6


def samples(clients: int = CLIENTS, each: int = 10) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Inputs and targets of each client; some have fewer than others, by what `data` takes of them."""
    random = np.random.default_rng(0)
    x = random.standard_normal((clients, each, 6)).astype(np.float32)
    return x, random.standard_normal((clients, each, 5)).astype(np.float32)


def data(x: Any = None, y: Any = None) -> Callable[[Any], Any]:
    """Each client's own samples, 10 or less."""
    if x is None:
        x, y = samples()

    def of(context: Any) -> Any:
        place = context.node_config["partition-id"]
        return x[place, : 10 - place], y[place, : 10 - place]

    return of
