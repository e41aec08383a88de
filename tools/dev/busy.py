#!/usr/bin/env python3
"""Measures what training steps take while every core also runs somebody else's busy process.

python tools/dev/busy.py                           the benchmark's workloads, 40 s
python tools/dev/busy.py w2 w5 --rounds 7          some, longer
python tools/dev/busy.py --own-session             busy processes as of another login, which some kernels weigh as a group

Quiet and busy phases take turns. A fair scheduler leaves half of each core, so that 2.0 is the best there can be for
steps much longer than its slices; a step much shorter mostly falls into one. The models are those of the benchmark
(BENCH_MODELS says where; the README of ../shared/bench how they are made).
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
import circle_train as ct

MODELS = Path(os.environ.get("BENCH_MODELS") or Path(tempfile.gettempdir()) / "circle_train_peers" / "models")
BAR = 2.5
SPIN = "while True: pass"


@dataclass(frozen=True)
class Workload:
    """A model of the benchmark and how it is trained there."""

    name: str
    batch: int
    loss: str
    trainable: Any = "all"


WORKLOADS = (
    Workload("w1b10", 10, "mse"),
    Workload("w1b32", 32, "mse"),
    Workload("w2", 32, "categorical_crossentropy"),
    Workload("w3", 10, "categorical_crossentropy"),
    Workload("w3t", 32, "mse", ("last", 5)),
    Workload("w5", 8, "categorical_crossentropy"),
)


def workload(name: str) -> Workload:
    """By its name on the command line."""
    found = {known.name: known for known in WORKLOADS}
    if name not in found:
        raise argparse.ArgumentTypeError(f"{name} is not one of {', '.join(found)}")
    return found[name]


@contextmanager
def spinning(count: int, own_session: bool) -> Iterator[None]:
    """So many processes that want a core each all the time."""
    spinners = [
        subprocess.Popen([sys.executable, "-S", "-c", SPIN], start_new_session=own_session)
        for _ in range(count)
    ]
    try:
        time.sleep(0.3 if count else 0.05)
        yield
    finally:
        for spinner in spinners:
            spinner.kill()
            spinner.wait()


class Trained:
    """One workload's session and data."""

    def __init__(self, workload: Workload, threads: int | None) -> None:
        config = ct.TrainConfig(
            loss=workload.loss, optimizer="adam", batch_size=workload.batch, trainable=workload.trainable
        )
        self.session = ct.TrainSession(str(model(workload.name)), config, threads=threads)
        self.x, y = (np.load(MODELS / f"{workload.name}.{part}.npy")[0] for part in "xy")
        outputs = self.session.program.outputs[0].type.shape[-1]
        self.y = np.eye(outputs, dtype=np.float32)[y] if outputs > 1 else y.astype(np.float32)[:, None]
        self.take(0.3)

    def take(self, seconds: float) -> list[float]:
        """Milliseconds of each step taken in this time, at least three."""
        taken: list[float] = []
        before = time.perf_counter()
        end = before + seconds
        while before < end or len(taken) < 3:
            self.session.train_step(self.x, self.y)
            after = time.perf_counter()
            taken.append((after - before) * 1e3)
            before = after
        return taken


def model(name: str) -> Path:
    """The file of a benchmark's model."""
    found = [path for path in (MODELS / f"{name}.tflite", MODELS / f"{name}.onnx") if path.exists()]
    if not found:
        sys.exit(f"{MODELS} has no model {name}: build_models.py of ../shared/bench makes it")
    return found[0]


@dataclass(frozen=True)
class Measured:
    """Milliseconds a step, all rounds together."""

    quiet: Sequence[float]
    busy: Sequence[float]

    @property
    def ratio(self) -> float:
        """Of the medians."""
        return statistics.median(self.busy) / statistics.median(self.quiet)

    def row(self, name: str) -> str:
        quiet, busy = statistics.median(self.quiet), statistics.median(self.busy)
        means = statistics.fmean(self.busy) / statistics.fmean(self.quiet)
        late = float(np.percentile(self.busy, 95)) / quiet
        cells = [name, f"{min(self.quiet):.3f}", f"{quiet:.3f}", f"{busy:.3f}", f"{self.ratio:.2f}"]
        return "| " + " | ".join([*cells, f"{means:.2f}", f"{late:.1f}"]) + " |"


def measure(workload: Workload, options: argparse.Namespace) -> Measured:
    """Quiet and busy phases in turn."""
    trained = Trained(workload, options.threads)
    quiet: list[float] = []
    busy: list[float] = []
    for _ in range(options.rounds):
        quiet += trained.take(options.seconds)
        with spinning(options.spinners, options.own_session):
            busy += trained.take(2 * options.seconds)
    return Measured(quiet, busy)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("workloads", nargs="*", type=workload, default=WORKLOADS, metavar="WORKLOAD")
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument(
        "--seconds", type=float, default=0.35, help="of a quiet phase; a busy one is twice as long"
    )
    parser.add_argument("--threads", type=int, help="of ours; default: one for each core")
    parser.add_argument("--spinners", type=int, default=os.cpu_count(), help="busy processes")
    parser.add_argument(
        "--own-session", action="store_true", help="start each busy process in a session of its own"
    )
    options = parser.parse_args()
    print(
        "| workload | quiet least, ms | quiet median | busy median | ratio | of means | busy 95 % ÷ quiet |"
    )
    print("|---|---|---|---|---|---|---|", flush=True)
    worst = 0.0
    for chosen in options.workloads:
        measured = measure(chosen, options)
        print(measured.row(chosen.name), flush=True)
        worst = max(worst, measured.ratio)
    print(f"worst ratio of medians {worst:.2f}, bar {BAR}")
    return 0 if worst <= BAR else 1


if __name__ == "__main__":
    sys.exit(main())
