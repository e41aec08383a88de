"""A server that is killed in the middle of a round."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from circle_train.checkpoints import safetensors

pytest.importorskip("flwr")

SERVER = """
import os, signal, sys
sys.path.insert(0, sys.argv[1])
from fleets import CLIENTS, CONFIG, MODEL, data
from flwr.serverapp import strategy as strategies
from circle_train import federated

dies = int(sys.argv[3])

class Mortal(strategies.FedAdam):
    def aggregate_train(self, number, replies):
        made = super().aggregate_train(number, replies)
        if number == dies:
            os.kill(os.getpid(), signal.SIGKILL)
        return made

clients = federated.client_app(MODEL, CONFIG, data())
strategy = Mortal(fraction_train=0.5, eta=0.01, beta_1=0.9, beta_2=0.99)
federated.simulate(clients, strategy, CLIENTS, rounds=4, run_dir=sys.argv[2])
"""


def serve(folder: Path, dies: int = 0) -> int:
    command = [sys.executable, "-c", SERVER, os.path.dirname(__file__), str(folder), str(dies)]
    return subprocess.run(command, capture_output=True, check=False, cwd=folder.parent).returncode


@pytest.mark.slow
def test_a_server_killed_in_a_round_ends_in_the_same_bits(tmp_path: Path) -> None:
    assert serve(tmp_path / "whole") == 0
    for dies in (1, 3):
        assert serve(tmp_path / "killed", dies) == -signal.SIGKILL
    assert serve(tmp_path / "killed") == 0
    found = [
        safetensors.decode((tmp_path / n / "run.safetensors").read_bytes(), n)[0] for n in ("whole", "killed")
    ]
    assert found[0].keys() == found[1].keys()
    for name, array in found[0].items():
        np.testing.assert_array_equal(array, found[1][name])
    exported = [(tmp_path / name / "model.circle").read_bytes() for name in ("whole", "killed")]
    assert exported[0] == exported[1]
