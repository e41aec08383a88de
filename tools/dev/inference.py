#!/usr/bin/env python3
"""The table of docs/performance.md on inference: least times of one call beside LiteRT's (.tflite) and onnxruntime's (.onnx).

python tools/dev/inference.py                         float models of ../shared/data/models, two networks of breadth.py, two
                                                      workloads of bench.py (where BENCH_MODELS says, if they were made)
python tools/dev/inference.py a.tflite b.onnx         those
python tools/dev/inference.py --threads 2 --no-page   on two threads, and only printed

Both are in one process and take turns, a tenth of a second each; a row stands only where their outputs agree.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path

import numpy as np
from bench import models_folder
from breadth import FOLDER, PAGE, ROOT

import circle_train as ct

BEGIN, END = "<!-- inference: written by tools/dev/inference.py -->", "<!-- end of inference -->"
MODELS = ROOT.parent / "shared" / "data" / "models"
NETWORKS = ("mbv1", "tinymlp")
"""Whose files of ONNX hold batch normalisations apart from the convolutions before them; eight samples, and one."""
WORKLOADS = ("w3", "w1b10")
"""MobileNetV2 for one picture, and an MLP."""
TURN = 0.1
NEAR = 1e-3
"""Of the largest output."""
Run = Callable[[], list[np.ndarray]]


def litert(path: Path, arrays: list[np.ndarray], threads: int) -> Run:
    from ai_edge_litert.interpreter import Interpreter

    interpreter = Interpreter(str(path), num_threads=threads)
    details = interpreter.get_input_details()
    for detail, array in zip(details, arrays, strict=True):
        interpreter.resize_tensor_input(detail["index"], array.shape)
    interpreter.allocate_tensors()

    def run() -> list[np.ndarray]:
        for detail, array in zip(details, arrays, strict=True):
            interpreter.set_tensor(detail["index"], array)
        interpreter.invoke()
        return [interpreter.get_tensor(detail["index"]) for detail in interpreter.get_output_details()]

    return run


def ort(path: Path, arrays: list[np.ndarray], threads: int) -> Run:
    import onnxruntime

    onnxruntime.set_default_logger_severity(4)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    feeds = {}
    for one, array in zip(session.get_inputs(), arrays, strict=True):
        fits = all(
            not isinstance(its, int) or its == size for its, size in zip(one.shape, array.shape, strict=True)
        )
        feeds[one.name] = array if fits else np.ascontiguousarray(np.moveaxis(array, -1, 1))
    return lambda: session.run(None, feeds)


def ours(path: Path, threads: int) -> tuple[Run, list[np.ndarray]]:
    """A call of ours, and the arrays that it is given: one sample where the model leaves their number open."""
    model = ct.load(path)
    session = ct.InferenceSession(model, threads=threads)
    random, arrays = np.random.default_rng(0), []
    for info in model.inputs:
        shape = [size if isinstance(size, int) and size > 0 else 1 for size in info.shape]
        arrays.append(random.normal(size=shape).astype(np.float32).astype(info.dtype))

    def run() -> list[np.ndarray]:
        found = session(*arrays)
        return found if isinstance(found, list) else [found]

    return run, arrays


def least(runs: Iterable[Run], seconds: float) -> list[float]:
    """The least milliseconds of each, in turns."""
    all_runs = [*runs]
    best = [float("inf") for _ in all_runs]
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        for place, run in enumerate(all_runs):
            until = time.perf_counter() + TURN
            while (begun := time.perf_counter()) < until:
                run()
                best[place] = min(best[place], time.perf_counter() - begun)
    return [1e3 * spent for spent in best]


def row(path: Path, options: argparse.Namespace) -> str | None:
    """A line of the table; None where there is nothing to compare."""
    try:
        mine, arrays = ours(path, options.threads)
        peer = (litert if path.suffix == ".tflite" else ort)(path, arrays, options.threads)
        found, expected = mine(), peer()
    except Exception as error:
        print(f"{path.name}: {(str(error) or repr(error)).splitlines()[0][:100]}", file=sys.stderr)
        return None
    # Channels may stand last in ours: what is compared is sorted.
    pairs = zip(found, expected, strict=True)
    gaps = [
        np.abs(np.sort(a.ravel()) - np.sort(b.ravel())).max() / max(np.abs(b).max(), 1e-6) for a, b in pairs
    ]
    if max(gaps) > NEAR:
        return f"| {path.name} | the outputs are not the same: {max(gaps):.1e} |  |  |  |"
    a, b = least((mine, peer), options.seconds)
    name = "LiteRT" if path.suffix == ".tflite" else "onnxruntime"
    return f"| {path.name} | {name} | {a:.3g} | {b:.3g} | {a / b:.2f} |"


def parse(arguments: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("models", nargs="*", type=Path)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=3.0, help="of both together, for each model")
    parser.add_argument("--no-page", action="store_true", help="only print the table")
    return parser.parse_args(arguments)


def main(arguments: list[str] | None = None) -> int:
    options = parse(arguments)
    paths = options.models or [
        *(path for path in sorted(MODELS.glob("*.*")) if "int8" not in path.name),
        *(path for name in NETWORKS if (path := FOLDER / "models" / f"{name}.onnx").exists()),
        *(path for name in WORKLOADS if (path := models_folder() / f"{name}.tflite").exists()),
    ]
    rows = [line for path in paths if (line := row(path, options)) is not None]
    head = (
        f"{options.threads} thread{'s' if options.threads > 1 else ''}; {time.strftime('%Y-%m-%d')}; "
        f"load average at the end {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores."
    )
    table = ["| model | beside | ms a call | its | ratio |", "|---|---|---|---|---|", *rows]
    print("\n".join(table))
    if not options.no_page:
        page = PAGE.read_text(encoding="utf-8")
        before, after = page.split(BEGIN)[0], page.split(END)[1]
        PAGE.write_text("\n".join([before + BEGIN, head, "", *table, END]) + after, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
