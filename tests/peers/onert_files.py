"""The files in tests/data/onert, and the runs that made them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

import circle_train as ct
from circle_train.ir import StateKey
from circle_train.ir.tensor_type import Array

FOLDER = Path(__file__).parents[1] / "data" / "onert"
RUNS: list[dict[str, Any]] = json.loads((FOLDER / "runs.json").read_text())
BY_NAME = {run["name"]: run for run in RUNS}


def config_of(run: dict[str, Any], **changes: Any) -> ct.TrainConfig:
    """The settings that ONERT trained with."""
    losses = {"mse": ct.losses.MeanSquaredError, "cce": ct.losses.CategoricalCrossentropy}
    optimizers = {"sgd": ct.optimizers.SGD, "adam": ct.optimizers.Adam}
    return ct.TrainConfig(
        loss=losses[run["loss"]](reduction=run["reduction"]),
        optimizer=optimizers[run["optimizer"]](learning_rate=run["learning_rate"]),
        batch_size=run["batch_size"],
        trainable=run["num_of_trainable_ops"],
    ).replace(**changes)


def session_of(run: dict[str, Any], **changes: Any) -> ct.TrainSession:
    return ct.TrainSession(str(FOLDER / run["model"]), config_of(run, **changes))


def batches(run: dict[str, Any]) -> list[tuple[list[Array], Array]]:
    """Inputs and labels of every step."""
    data = np.load(FOLDER / f"{run['name']}.npz")
    inputs = [data[name] for name in sorted(data.files) if name.startswith("x")]
    return [([x[step] for x in inputs], data["y"][step]) for step in range(len(data["y"]))]


def trained(run: dict[str, Any], steps: int, **changes: Any) -> ct.TrainSession:
    """A session after some steps."""
    session = session_of(run, **changes)
    for x, y in batches(run)[:steps]:
        session.train_step(x, y)
    return session


def everything(session: ct.TrainSession) -> dict[StateKey, bytes]:
    """All of the state that a checkpoint could change."""
    arrays = {key: array.tobytes() for key, array in session.state.arrays.items() if key.kind != "scalars"}
    return arrays | {StateKey("step", ""): bytes(str(session.state.step), "ascii")}
