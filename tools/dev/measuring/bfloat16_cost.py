"""What bfloat16 activations cost in accuracy, and save in memory: the tables of docs/bfloat16.md.

    export BENCH_MODELS=folder/of/the/bench/models
    python tools/dev/measuring/bfloat16_cost.py [w2] [w5] [w3] [--seeds 3]
    python tools/dev/measuring/bfloat16_cost.py [w2] [w5] [w3] --steps float32 [--threads 1]

The models are those of ../shared/bench (w2: a CNN of 28x28 images, w3: MobileNetV2 at 224x224, w5: BERT-mini), untrained;
the data are Debian's dataset-fashion-mnist and, of ../shared/data, CIFAR-10's pictures and HAPT's accelerometer readings.
"""

from __future__ import annotations

import argparse
import gzip
import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import circle_train as ct

SHARED = Path(__file__).resolve().parents[4] / "shared" / "data"
FASHION = Path("/usr/share/datasets/fashion-mnist")
Data = tuple[Any, Any, Any, Any]
"""Samples and labels to learn from, samples and labels to be judged by."""


@dataclass(frozen=True)
class Workload:
    """A model, its data, and how long it is trained."""

    file: str
    title: str
    data: Callable[[], Data]
    classes: int
    batch: int
    epochs: int
    rate: float


def idx(name: str) -> Any:
    """An array of a .gz in idx format."""
    raw = gzip.decompress((FASHION / f"{name}.gz").read_bytes())
    return np.frombuffer(raw, np.uint8, offset=4 + 4 * raw[3]).reshape(
        [int.from_bytes(raw[4 + 4 * i : 8 + 4 * i], "big") for i in range(raw[3])]
    )


def fashion() -> Data:
    x, y = idx("train-images-idx3-ubyte")[:20000], idx("train-labels-idx1-ubyte")[:20000]
    u, v = idx("t10k-images-idx3-ubyte"), idx("t10k-labels-idx1-ubyte")
    return x[..., None] / np.float32(255), y, u[..., None] / np.float32(255), v


def cifar() -> Data:
    """Pictures of 32x32 pixels, each pixel seven times as wide and as high."""
    found = np.load(SHARED / "cifar10_small.npz")
    x, y, u, v = (found[name] for name in ("x_train", "y_train", "x_test", "y_test"))

    def enlarged(images: Any) -> Any:
        return images.repeat(7, 1).repeat(7, 2).astype(np.float32) / 127.5 - 1

    return enlarged(x[:2000]), y[:2000].ravel(), enlarged(u[:500]), v[:500].ravel()


def stairs() -> Data:
    """Up (0) or down (1), from 128 readings of the vertical accelerometer as words; users 25 to 30 are left out and judge."""
    found = np.load(SHARED / "hapt.npz")
    x, label, user = found["x"][:, 0], found["label"], found["user"]
    windows, labels, users = [], [], []
    for start in range(0, len(x) - 128, 64):
        part = slice(start, start + 128)
        if (
            label[start] in (2, 3)
            and (label[part] == label[start]).all()
            and user[start] == user[start + 127]
        ):
            windows.append(np.clip((x[part] + 0.5) * 150, 1, 500).astype(np.int32))
            labels.append(label[start] - 2)
            users.append(user[start])
    words, y, judges = np.array(windows), np.array(labels), np.array(users) > 24
    return words[~judges], y[~judges], words[judges], y[judges]


WORKLOADS = {
    "w2": Workload("w2.tflite", "CNN, Fashion-MNIST", fashion, 10, 32, 2, 1e-3),
    "w5": Workload("w5.onnx", "BERT-mini, HAPT stairs up or down", stairs, 2, 8, 1, 1e-4),
    "w3": Workload("w3.tflite", "MobileNetV2 from scratch, CIFAR-10", cifar, 1000, 10, 2, 1e-3),
}


def train(work: Workload, data: Data, activations: str, seed: int) -> tuple[float, float, ct.TrainSession]:
    """Training loss of the last epoch, accuracy on what was held out, and the session."""
    x, y, u, v = data
    config = ct.TrainConfig(
        ct.losses.SparseCategoricalCrossentropy(from_logits=None),
        ct.optimizers.Adam(work.rate),
        work.batch,
        activations=activations,
    )
    session = ct.TrainSession(Path(os.environ["BENCH_MODELS"]) / work.file, config, seed=seed)
    history = session.fit(x, y, epochs=work.epochs, verbose=0)
    guesses = [session.predict(u[i : i + 50]).argmax(-1) for i in range(0, len(u), 50)]
    return history.history["loss"][-1], float((np.concatenate(guesses) == v).mean()), session


def report(work: Workload, seeds: int) -> None:
    data = work.data()
    steps = len(data[0]) // work.batch * work.epochs
    print(
        f"{work.title}: {len(data[0])} samples, {steps} steps of {work.batch}; judged by {len(data[2])}",
        flush=True,
    )
    for activations in ("float32", "bfloat16"):
        runs = [train(work, data, activations, seed) for seed in range(seeds)]
        losses, scores = [run[0] for run in runs], [run[1] for run in runs]
        plan = runs[0][2].plan
        print(
            f"  {activations:9} loss {np.mean(losses):.4f} ({', '.join(f'{loss:.4f}' for loss in losses)})  "
            f"accuracy {np.mean(scores):.2%} ({', '.join(f'{score:.2%}' for score in scores)})  "
            f"arena {plan.memory['arena'] / 1e6:.1f} MB",
            flush=True,
        )


def report_steps(work: Workload, activations: str, threads: int | None) -> None:
    """Least time of a step, and how far the process grew; to be asked of a new process each time."""
    x, y = (np.array(part[: work.batch]) for part in work.data()[:2])
    Path("/proc/self/clear_refs").write_text("5")  # the peak is from now on
    before = peak()
    loss = ct.losses.SparseCategoricalCrossentropy(from_logits=None)
    config = ct.TrainConfig(loss, ct.optimizers.Adam(work.rate), work.batch, activations=activations)
    session = ct.TrainSession(Path(os.environ["BENCH_MODELS"]) / work.file, config, threads=threads)
    times = []
    for _ in range(30):
        start = time.perf_counter()
        session.train_step(x, y)
        times.append(time.perf_counter() - start)
    arena, planned = session.plan.memory["arena"] / 1e6, session.plan.total_bytes / 1e6
    print(
        f"{work.title}, batch {work.batch}, {activations}: {min(times) * 1e3:.1f} ms a step, arena {arena:.1f} MB,",
        end=" ",
    )
    print(f"planned {planned:.1f} MB, the process grew by {(peak() - before) / 1e6:.1f} MB")


def peak() -> int:
    """The most bytes that were resident."""
    status = Path("/proc/self/status").read_text(encoding="ascii")
    return next(int(line.split()[1]) << 10 for line in status.splitlines() if line.startswith("VmHWM"))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("workloads", nargs="*", choices=[*WORKLOADS, []], help="default: all")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument(
        "--steps", choices=["float32", "bfloat16"], help="time and memory instead, of this kind"
    )
    parser.add_argument("--threads", type=int, help="of --steps (default: all cores)")
    options = parser.parse_args()
    for name in options.workloads or WORKLOADS:
        if options.steps:
            report_steps(WORKLOADS[name], options.steps, options.threads)
        else:
            report(WORKLOADS[name], options.seeds)
