#!/usr/bin/env python3
"""What evaluation, prediction, waiting gradients, checkpoints, exports and reports take at their peak besides a step: the
constants of circle_train/report/besides.py.

python tools/dev/measuring/besides.py        the six models of tools/dev/measuring/budgets.py, batch 2
"""

from __future__ import annotations

import sys
import tempfile
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import budgets
import numpy as np

import circle_train as ct
from circle_train.report.besides import besides_bytes


def peak(work: Callable[[], Any]) -> float:
    """Of what Python and numpy allocate, in kB."""
    tracemalloc.start()
    work()
    found = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return found / 1e3


def measure(path: str, settings: dict[str, Any], folder: Path) -> list[str]:
    """Planned and measured, for each."""
    session = ct.TrainSession(path, ct.TrainConfig(**{**settings, "batch_size": 2}))
    program = session.program
    x = [np.zeros(t.shape, t.dtype.numpy) for t in program.inputs]
    y = [np.zeros(t.shape, t.dtype.numpy) for t in program.targets]
    session.train_step(x, y)
    trained = sum(p.tensor.type.nbytes for p in program.trained) / 1e3
    works: dict[str, Callable[[], Any]] = {
        "evaluation": lambda: session.eval_step(x, y),
        "prediction": lambda: session.predict_batch(x),
        "accumulation": lambda: session.train_step(x, y, update=False, accumulate=True),
        "checkpoint": lambda: session.save_checkpoint(folder / "a.safetensors"),
        "export": lambda: session.export(folder / f"a{Path(path).suffix}"),
        "report": lambda: session.report(folder / "a.html"),
    }
    planned = besides_bytes(program, session.model, {})
    found = {name: peak(work) for name, work in works.items()}
    if found["accumulation"] > trained:  # larger sums lie in pages of their own, which nobody counts here
        found["accumulation"] -= trained
    return [f"{planned[name] / 1e3:.0f} {measured:.0f}" for name, measured in found.items()]


def main() -> int:
    print(
        "| model, kB: planned measured | evaluation | prediction | accumulation | checkpoint | export | report |"
    )
    print("|---|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        for name, path, settings in budgets.models(Path(folder)):
            print(f"| {name} | {' | '.join(measure(path, settings, Path(folder)))} |", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
