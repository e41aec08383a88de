#!/usr/bin/env python3
"""Integer models beside LiteRT: how many steps apart the results are, and the processor time of a run, in turns.

python tools/dev/integers.py MODEL.tflite … [--threads 1] [--rounds 20] [--samples 20]
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import circle_train as ct


def random_inputs(details: list[dict[str, Any]], seed: int) -> list[np.ndarray]:
    rng = np.random.default_rng(seed)
    made = []
    for detail in details:
        kind = np.dtype(detail["dtype"])
        if kind.kind in "iu":
            limits = np.iinfo(kind)
            made.append(rng.integers(limits.min, limits.max, detail["shape"], endpoint=True).astype(kind))
        else:
            made.append(rng.uniform(-1, 1, detail["shape"]).astype(kind))
    return made


def seconds(run: Callable[[], object], count: int) -> tuple[float, float]:
    """Of one run: on the wall, and of all threads of the process."""
    wall, cpu = time.perf_counter(), time.process_time()
    for _ in range(count):
        run()
    return (time.perf_counter() - wall) / count, (time.process_time() - cpu) / count


def compare(path: Path, threads: int, rounds: int, samples: int) -> str:
    from ai_edge_litert.interpreter import Interpreter

    theirs = Interpreter(str(path), num_threads=threads)
    theirs.allocate_tensors()
    given, made = theirs.get_input_details(), theirs.get_output_details()
    ours = ct.InferenceSession(path, threads=threads)
    apart, same = [], []
    for seed in range(samples):
        xs = random_inputs(given, seed)
        found = ours(*xs)
        for detail, x in zip(given, xs, strict=True):
            theirs.set_tensor(detail["index"], x)
        theirs.invoke()
        for detail, y in zip(made, found if isinstance(found, list) else [found], strict=True):
            wanted = theirs.get_tensor(detail["index"])
            apart.append(np.abs(wanted.astype(np.float64) - y).ravel())
            same.append(int(wanted.argmax()) == int(y.argmax()))
    steps = np.concatenate(apart)
    count = max(1, int(0.05 / max(seconds(lambda: ours(*xs), 2)[0], 1e-9)))
    best = np.full((2, 2), np.inf)
    for _ in range(rounds):
        for i, run in enumerate((theirs.invoke, lambda: ours(*xs))):
            best[i] = np.minimum(best[i], seconds(run, count))
    ratio = best[1] / best[0]
    return (
        f"{path.name}: at most 1 step {100 * (steps <= 1).mean():.2f} %, equal {100 * (steps == 0).mean():.2f} %, "
        f"argmax {100 * np.mean(same):.1f} %; {threads} thread(s): LiteRT {best[0, 0] * 1e6:.0f} us, "
        f"circle_train {best[1, 0] * 1e6:.0f} us, ratio {ratio[0]:.2f}, of processor time {ratio[1]:.2f}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("models", type=Path, nargs="+")
    for name, value in (("threads", 1), ("rounds", 20), ("samples", 20)):
        parser.add_argument(f"--{name}", type=int, default=value)
    options = parser.parse_args()
    for path in options.models:
        print(compare(path, options.threads, options.rounds, options.samples))


if __name__ == "__main__":
    main()
