"""What becomes of a run when a SuperNode is killed in the middle of a round, with -9, and started again.

    python tools/dev/fleet_killed.py

A SuperLink and two SuperNodes on loopback, five rounds; the second SuperNode dies when it has received the message that begins
round 3. The weights at the end are, to the bit, those of one process in which that client takes part in the same rounds.
Needs the [federated] extra; Flower notices that a node is gone when it has not been heard of for a minute.
"""

from __future__ import annotations

import json
import logging
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from circle_train import federated
from circle_train.checkpoints import safetensors
from circle_train.cli.federate.launch import Link, daemon, superlink
from circle_train.federated.new_app import new_app

ROUNDS, DIES_IN, PATIENCE = 5, 3, 600.0
RECEIVED = "Receiving: train message"
"""What a SuperNode writes when a round begins for it."""


def finished(run: Path) -> tuple[list[dict[str, Any]], list[dict[str, Any]], dict[str, Any]]:
    """Rounds so far, replies left out, weights."""
    if not run.exists():
        return [], [], {}
    arrays, told = safetensors.decode(run.read_bytes(), str(run))
    return json.loads(told["rounds"]), json.loads(told["refused"]), arrays


def deployed(app: Path, link: Link) -> float:
    """Run the app; the second node dies in a round and comes back."""
    run, begun = app / "run/run.safetensors", time.monotonic()
    config = f"clients=2 num-server-rounds={ROUNDS}"
    with daemon(*_node(link, 0)):
        with daemon(*_node(link, 1)) as second:
            flower = subprocess.Popen(
                ["flwr", "run", str(app), "--stream", "--run-config", config],
                env=link.environment,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.STDOUT,
            )
            log = link.node(1, 2)[1]
            while log.read_text(errors="replace").count(RECEIVED) < DIES_IN:
                if time.monotonic() - begun > PATIENCE:
                    raise SystemExit(f"no round {DIES_IN} after {PATIENCE:g} s; look into {log}")
                time.sleep(0.05)
            os.killpg(second, signal.SIGKILL)
        with daemon(*_node(link, 1)):
            flower.wait(PATIENCE)
            while len(finished(run)[0]) < ROUNDS and time.monotonic() - begun < PATIENCE:
                time.sleep(0.5)
    return time.monotonic() - begun


def _node(link: Link, place: int) -> tuple[list[str], Any, Path]:
    command, log = link.node(place, 2)
    return command, link.environment, log


def repeated(app: Path, rounds: list[dict[str, Any]]) -> Any:
    """The same run in this process: the second client fails in the rounds that had one client."""
    sys.path.insert(0, str(app))
    from fleet.client_app import app as clients  # type: ignore[import-not-found]
    from fleet.server_app import app as server  # type: ignore[import-not-found]

    alone = {one["number"] for one in rounds if one["clients"] == 1}

    def mortal(message: Any, context: Any) -> Any:
        number = next(iter(message.content.config_records.values()))["server-round"]
        if context.node_config["partition-id"] == 1 and number in alone:
            raise OSError("killed")
        return clients(message, context)

    logging.getLogger("flwr").setLevel(logging.ERROR)
    config = {"num-server-rounds": ROUNDS, "run-dir": str(app / "repeated")}
    return federated.simulate(mortal, server, 2, run_config=config)  # type: ignore[arg-type]


def main() -> int:
    with tempfile.TemporaryDirectory() as folder:
        app = new_app(Path(folder) / "app")
        with superlink(str(app)) as link:
            seconds = deployed(app, link)
        rounds, refused, arrays = finished(app / "run/run.safetensors")
        for one in rounds:
            print(f"round {one['number']}: {one['clients']} clients trained, {one['seconds']:.1f} s")
        for reply in refused:
            print(f"left out in round {reply['round']}: client {reply['client']}: {reply['why']}")
        again = repeated(app, rounds)
        found = {name.removeprefix("global/"): a for name, a in arrays.items() if name.startswith("global/")}
        same = len(rounds) == ROUNDS and all(np.array_equal(a, found[n]) for n, a in again.arrays.items())
        verdict = "the same bits" if same else "OTHER BITS"
        print(f"{len(rounds)} rounds in {seconds:.0f} s: {verdict} as in one process with the same clients")
    return 0 if same else 1


if __name__ == "__main__":
    sys.exit(main())
