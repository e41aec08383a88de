#!/usr/bin/env python3
"""What less memory costs: steps within budgets, and with one-bit masks, each in a process of its own.

python tools/dev/measuring/thrift.py              the tables of docs/performance.md
python tools/dev/measuring/thrift.py --steps 30   more steps: steadier least times

`normed` and `biases` are networks of the tests; w3 and w5 are those of ../shared/bench (BENCH_MODELS says where they are,
without them their rows are left out).
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[3]
MODELS = Path(os.environ.get("BENCH_MODELS") or Path(tempfile.gettempdir()) / "circle_train_peers" / "models")
STEP = """
import gc, json, sys, time
import numpy as np, circle_train as ct
from circle_train.backends.native import joining
import circle_train.session.keeping  # noqa: F401 -- its memory is not the session's
path, budget, wish, count = sys.argv[1], json.loads(sys.argv[2]), json.loads(sys.argv[3]), int(sys.argv[4])
bits = wish.pop("bits", True)
if not bits:
    joining.PASSES = tuple(p for p in joining.PASSES if p.__name__ != "keep_bits")
def status(key):
    return next(int(line.split()[1]) * 1024 for line in open("/proc/self/status") if line.startswith(key))
rng = np.random.default_rng(0)
only = wish.pop("only", None)
trainable = "all" if only is None else lambda name: only in name
gc.collect()
open("/proc/self/clear_refs", "w").write("5")
before = status("VmRSS")
session = ct.TrainSession(path, ct.TrainConfig(trainable=trainable, memory_budget=budget, **wish), threads=2, backend="native")
program, plan = session.program, session.plan
feeds = []
for tensors in (program.inputs, program.targets):
    made = [rng.random(t.shape, np.float32) if t.dtype.is_float else rng.integers(0, 2, t.shape).astype(t.dtype.numpy)
            for t in tensors]
    feeds.append(made if len(made) > 1 else made[0])
data = sum(a.nbytes for feed in feeds for a in (feed if isinstance(feed, list) else [feed]))
times = []
for _ in range(count):
    start = time.perf_counter()
    session.train_step(*feeds)
    times.append(time.perf_counter() - start)
print(json.dumps({"plan": plan.total_bytes, "besides": sum(plan.besides.values()),
                  "peak": status("VmHWM") - before - data, "least": min(times), "parts": plan.parts,
                  "repeats": len(plan.repeats), "work": plan.repeated_work}))
"""


def step(path: Path, budget: int | None, wish: dict[str, Any], count: int) -> dict[str, Any]:
    """Plan, measured growth (without the data) and least time of a step."""
    words = [sys.executable, "-c", STEP, str(path), json.dumps(budget), json.dumps(wish), str(count)]
    done = subprocess.run(words, capture_output=True, text=True, cwd=ROOT, check=False)
    if done.returncode:
        raise SystemExit(done.stderr)
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def budgets(name: str, path: Path, wish: dict[str, Any], shares: list[float], count: int) -> None:
    """One row a budget, which is a share of what the step takes without."""
    whole = step(path, None, wish, count)
    print(f"| {name} | none | {row(whole)} | 1.00 |")
    for share in shares:
        budget = int(share * whole["plan"]) + whole["besides"]
        found = step(path, budget, wish, count)
        print(
            f"| {name} | {budget / 1e6:.0f} | {row(found)} | {found['least'] / whole['least']:.2f} |",
            flush=True,
        )


def row(found: dict[str, Any]) -> str:
    sizes = f"{found['plan'] / 1e6:.1f} | {found['peak'] / 1e6:.1f}"
    return f"{sizes} | {found['parts']} | {found['repeats']}"


def masks(name: str, path: Path, wish: dict[str, Any], count: int) -> None:
    """With the outputs of activations kept, and with a bit of each element."""
    whole, bits = (step(path, None, {**wish, "bits": on}, count) for on in (False, True))
    sizes = f"{whole['plan'] / 1e6:.1f} → {bits['plan'] / 1e6:.1f} | {whole['peak'] / 1e6:.1f} → {bits['peak'] / 1e6:.1f}"
    print(f"| {name} | {sizes} | {bits['least'] / whole['least']:.2f} |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--steps", type=int, default=12, help="steps of each row (default: %(default)s)")
    count = parser.parse_args().steps
    sys.path[:0] = [str(ROOT / "tests" / folder) for folder in ("nets", "backends", "compile")]
    from test_memory_masks import fused
    from test_memory_recompute import normed

    w3, w5 = MODELS / "w3.tflite", MODELS / "w5.onnx"
    entropy = {"loss": "categorical_crossentropy"}
    with tempfile.TemporaryDirectory() as folder:
        by_batch, biases = Path(folder) / "normed.circle", Path(folder) / "fused.circle"
        normed(64, 32, 6).save(by_batch)
        fused(64, 48).save(biases)
        print(
            "| network | budget, MB | planned | measured | parts | made again | time |\n|---|---|---|---|---|---|---|"
        )
        norm = {"loss": "mse", "batch_size": 32, "batch_norm": "train"}
        budgets("normed, batch statistics", by_batch, norm, [0.8, 0.65, 0.5], count)
        if w3.exists():
            budgets("w3", w3, {**entropy, "batch_size": 10}, [0.65, 0.5, 0.35], count)
        if w5.exists():
            budgets("w5", w5, {**entropy, "batch_size": 8}, [0.95, 0.9], count)
        print("\n| biases alone | planned, MB | measured | time |\n|---|---|---|---|")
        masks("fused", biases, {"loss": "mse", "batch_size": 32, "only": "/b"}, count)
        if w3.exists():
            masks("w3", w3, {**entropy, "batch_size": 10, "only": "/bias"}, count)


if __name__ == "__main__":
    main()
