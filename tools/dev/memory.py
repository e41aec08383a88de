#!/usr/bin/env python3
"""Prints what `session.plan` foresees beside what a process takes, for the models of ../shared/bench or for any other.

python tools/dev/memory.py                                   the benchmark's workloads, by its own harness (BENCH_MODELS)
python tools/dev/memory.py net.onnx --batch 8 --loss mse     one model
python tools/dev/memory.py --json                            for other programs

Measured is the peak of a process of its own (VmHWM, set back when its data lie in memory) over what it held then, from
reading the model through training steps; in MiB. Of one model two measurings differ by up to 0.2 MiB, by what the process
had touched before.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import circle_train as ct
from circle_train.compile.compile import compile
from circle_train.report.plan import table

ROOT = Path(__file__).resolve().parents[2]
BENCH, RUNNER = ROOT.parent / "shared" / "bench", ROOT / "tools" / "dev" / "run_circle.py"
WORKLOADS = ("w1b10", "w1b32", "w2", "w3", "w3t", "w5")
MIB = 1 << 20
CHILD = """
import ctypes, gc, json, sys
import numpy as np, circle_train as ct
path, settings, specs, steps, threads = json.loads(sys.argv[1])
def status(key):
    return next(int(line.split()[1]) * 1024 for line in open("/proc/self/status") if line.startswith(key))
random = np.random.default_rng(0)
def data(shape, kind):
    if kind.startswith("float"):
        return random.random(shape).astype(kind)
    return random.integers(0, 2, shape).astype(kind)
x, y = ([data(*spec) for spec in group] for group in specs)
gc.collect()
ctypes.CDLL(None).malloc_trim(0)
open("/proc/self/clear_refs", "w").write("5")
before = status("VmRSS")
session = ct.TrainSession(path, ct.TrainConfig(**settings), threads=threads)
session.prepare()
for _ in range(steps):
    session.train_step(x, y)
peak = status("VmHWM")
print(json.dumps([session.plan.total_bytes, peak - before]))
"""


@dataclass(frozen=True)
class Case:
    """A model and how it is trained."""

    path: Path
    settings: dict[str, Any]
    """Of TrainConfig."""


@dataclass(frozen=True)
class Memory:
    """Bytes foreseen and taken."""

    planned: int
    measured: int

    @property
    def difference(self) -> float:
        """Of the plan, relative to what was measured."""
        return self.planned / self.measured - 1


def benchmark(name: str, steps: int, threads: int) -> Memory:
    """One of the benchmark's workloads, by its own harness and our runner."""
    with tempfile.TemporaryDirectory() as folder:
        scripts = Path(shutil.copytree(BENCH, Path(folder) / "bench"))
        runner = str(shutil.copy(RUNNER, scripts))
        command = [
            runner,
            "--workload",
            name,
            "--rounds",
            "1",
            "--steps",
            str(steps),
            "--threads",
            str(threads),
        ]
        found = json.loads(second_run(name, command))
    return Memory(int(found["planned_mb"] * MIB), int(found["rss_growth_mb"] * MIB))


def second_run(name: str, arguments: list[str]) -> str:
    """What the second of two runs prints: the first writes the modules' bytecode where there is none."""
    package = str(Path(ct.__file__).parents[1])
    path = os.pathsep.join([package, os.environ.get("PYTHONPATH", "")]).rstrip(os.pathsep)
    environment = {**os.environ, "PYTHONPATH": path}
    # Compiling modules takes memory that is not ours to foresee.
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    output = ""
    for _ in range(2):
        command = [sys.executable, *arguments]
        # Not from the root, whose package would come before the one that is meant.
        done = subprocess.run(
            command, capture_output=True, text=True, check=False, env=environment, cwd=Path(__file__).parent
        )
        if done.returncode:
            raise RuntimeError(f"{name}: {done.stderr.strip()}")
        output = done.stdout
    return output


def measure(case: Case, steps: int = 22, threads: int = 2) -> Memory:
    """Train in a process of its own."""
    config = ct.TrainConfig(**case.settings)
    program = compile(ct.load(case.path).module.main, config, sizes=config.batch_size)
    specs = [[(t.shape, str(t.dtype.numpy)) for t in group] for group in (program.inputs, program.targets)]
    arguments = json.dumps([str(case.path.resolve()), case.settings, specs, steps, threads])
    planned, measured = json.loads(second_run(case.path.name, ["-c", CHILD, arguments]))
    return Memory(planned, measured)


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("models", nargs="*", type=Path, help="instead of the benchmark's")
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--loss", default="mse")
    parser.add_argument("--optimizer", default="adam")
    parser.add_argument("--last", type=int, help="train the last so many operators")
    parser.add_argument("--budget", help="memory_budget, e.g. 200MB")
    parser.add_argument("--steps", type=int, default=22)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--json", action="store_true")
    return parser.parse_args()


def main() -> int:
    options = parse()
    settings = {"loss": options.loss, "optimizer": options.optimizer, "batch_size": options.batch}
    if options.budget:
        settings["memory_budget"] = options.budget
    if options.last:
        settings["trainable"] = ("last", options.last)
    found: dict[str, Memory] = {}
    for path in options.models:
        found[path.name] = measure(Case(path, settings), options.steps, options.threads)
    if not options.models and not BENCH.exists():
        sys.exit(f"{BENCH} is not there; name models to measure")
    for name in () if options.models else WORKLOADS:
        found[name] = benchmark(name, options.steps, options.threads)
    if options.json:
        print(json.dumps({name: [memory.planned, memory.measured] for name, memory in found.items()}))
        return 0
    rows = [("model", "planned, MiB", "measured, MiB", "difference")]
    for name, memory in found.items():
        numbers = (f"{memory.planned / MIB:.2f}", f"{memory.measured / MIB:.2f}")
        rows.append((name, *numbers, f"{100 * memory.difference:+.1f} %"))
    print("\n".join(table(rows)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
