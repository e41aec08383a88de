"""A fleet's run file from a stranger: a whole checksum over anything."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from circle_train.checkpoints import safetensors
from circle_train.errors import CheckpointError

pytest.importorskip("flwr")

from fleets import CLIENTS, CONFIG, MODEL, data
from flwr.serverapp.strategy import FedAdam

from circle_train import federated

Arrays, Told = dict[str, Any], dict[str, str]


def run(folder: Path, rounds: int) -> Any:
    clients = federated.client_app(MODEL, CONFIG, data())
    return federated.simulate(clients, FedAdam(eta=0.01), CLIENTS, rounds=rounds, run_dir=folder)


@pytest.fixture(scope="module")
def begun(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("begun")
    run(folder, 1)
    return folder


def in_round(name: str, value: Any) -> Any:
    def change(_: Arrays, told: Told) -> None:
        told["rounds"] = json.dumps([json.loads(told["rounds"])[0] | {name: value}])

    return change


def remembered(name: str, value: Any) -> Any:
    def change(_: Arrays, told: Told) -> None:
        told["strategy"] = json.dumps(json.loads(told["strategy"]) | {name: value})

    return change


def other(name: str, change: Any) -> Any:
    def changed(arrays: Arrays, _: Told) -> None:
        arrays[name] = change(arrays[name])

    return changed


LIES = {
    "a round of words": in_round("clients", "many"),
    "bytes in a list": in_round("bytes_up", [1, 2]),
    "a billion rounds": in_round("number", 10**9),
    "metrics that are a number": in_round("training", 3),
    "a metric that is a word": in_round("server", {"loss": "low"}),
    "seconds in a table": in_round("seconds", {"a": 1}),
    "no rounds but a number": lambda _, told: told.update(rounds="5"),
    "a best that is a word": lambda _, told: told.update(best='[1, "low"]'),
    "best weights of another shape": other("best/fc0/W", np.ravel),
    "weights of another type": other("global/fc0/W", lambda a: a.astype(np.float64)),
    "moments of another shape": other("strategy/v_t#0", lambda a: a.reshape(-1)[:7]),
    "moments that are not there": lambda arrays, _: arrays.pop("strategy/v_t#0"),
    "a strategy that is a list": lambda _, told: told.update(strategy="[1]"),
    "a word for a number": remembered("eta", {"plain": "much"}),
    "a number for what it does": remembered("aggregate_train", {"plain": 1}),
    "what every object has": remembered("__dict__", {"dict": {}}),
    "a strategy in a number": remembered("eta", {"strategy": {}}),
    "nothing told of it": remembered("eta", {}),
}


@pytest.mark.parametrize("lie", LIES)
def test_a_run_file_that_lies_is_refused(lie: str, begun: Path, tmp_path: Path) -> None:
    """Each ended in an exception of Python's or of Flower's; the one of a billion rounds in no memory."""
    arrays, told = safetensors.decode((begun / "run.safetensors").read_bytes(), "begun")
    arrays, told = dict(arrays), {name: text for name, text in told.items() if name != "checksum"}
    LIES[lie](arrays, told)
    (tmp_path / "run.safetensors").write_bytes(safetensors.encode(arrays, told | {"finished": "false"}))
    with pytest.raises(CheckpointError, match="run"):
        run(tmp_path, 2)
    assert not (tmp_path / "report.html").exists()


def test_the_same_file_without_a_lie_goes_on(begun: Path, tmp_path: Path) -> None:
    shutil.copy(begun / "run.safetensors", tmp_path)
    assert run(tmp_path, 2).done == 2


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="there are no pipes with names")
def test_a_pipe_is_no_run_file(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "run.safetensors")
    with pytest.raises(CheckpointError, match="a pipe or a device"):
        run(tmp_path, 1)
