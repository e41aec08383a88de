"""Runs in ONERT's Python: trains as jobs.pkl says, one session a job, and writes results.pkl.

Arrays stay referenced until the step is done: the wheel borrows their memory.
"""

from __future__ import annotations

import os
import pickle
import sys
from typing import Any

import numpy as np
from onert.experimental import train as onert_train
from onert.infer import session as InferSession


def train(job: dict[str, Any]) -> list[float]:
    """Losses of each step."""
    session = onert_train.session(job["model"], "train")
    if "optimizer" in job:
        makers = {"sgd": onert_train.optimizer.SGD, "adam": onert_train.optimizer.Adam}
        optimizer = makers[job["optimizer"]](learning_rate=job["learning_rate"])
        optimizer.nums_trainable_ops = job["trainable"]
        session.compile(
            optimizer=optimizer, loss=onert_train.losses.MeanSquaredError("mean"), batch_size=job["batch"]
        )
    else:
        session.session.train_prepare()
    native = session.session
    if job.get("import"):
        native.train_import_checkpoint(job["import"])
    losses = []
    for inputs, expected in job["data"]:
        kept = [
            np.ascontiguousarray(array, np.float32) for array in (*inputs, expected, np.zeros_like(expected))
        ]
        for index, array in enumerate(kept[:-2]):
            native.train_set_input(index, array)
        native.train_set_expected(0, kept[-2])
        native.train_set_output(0, kept[-1])
        native.train(update_weights=True)
        losses.append(float(native.train_get_loss(0)))
    if job.get("export"):
        native.train_export_checkpoint(job["export"])
    return losses


def infer(job: dict[str, Any]) -> list[Any]:
    """Outputs of the model."""
    session = InferSession(job["model"])
    kept = [np.ascontiguousarray(array, np.float32) for array in job["data"]]
    return [np.array(output) for output in session.infer(kept)]


def main() -> None:
    os.chdir(sys.argv[1])
    with open("jobs.pkl", "rb") as file:
        jobs = pickle.load(file)
    results: list[Any] = []
    for job in jobs:
        try:
            results.append((infer if job.get("infer") else train)(job))
        except Exception as error:
            results.append(repr(error))
        with open("results.pkl", "wb") as file:
            pickle.dump(results, file)


if __name__ == "__main__":
    main()
