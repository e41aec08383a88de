#!/usr/bin/env python3
"""What `ct.choose` chooses, against what else could have been trained: the tables of docs/choosing.md.

python tools/dev/measuring/choosing.py phone --seeds 5      phones: turned, upright, with classes in another order
python tools/dev/measuring/choosing.py cifar --seeds 5      MobileNetV1 and CIFAR-10, over budgets of memory
python tools/dev/measuring/choosing.py inverted             the same with pictures inverted, one budget
python tools/dev/measuring/choosing.py animals              MobileNetV1 and four animals

Data and models lie in ../shared/data (SHARED_DATA says otherwise); the phone's factory model is trained here.
"""

from __future__ import annotations

import argparse
import io
import os
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

import circle_train as ct
from circle_train.finetuning.choosing.choice import Choice

ROOT = Path(__file__).resolve().parents[3]
DATA = Path(os.environ.get("SHARED_DATA") or ROOT.parent / "shared" / "data")
NET = DATA / "models" / "mobilenet_v1_1.0_224_f32.tflite"
ENTROPY = "sparse_categorical_crossentropy"
LENGTH, STEP, LESSON = 128, 64, 100
Found = dict[str, list[tuple[float, ...]]]
"""Figures of each seed, by what they are figures of."""
BUDGETS = ("65MB", "80MB", "100MB", "120MB", "150MB")


def windows() -> tuple[Any, Any, Any, Any]:
    """Windows of channels first, what they are, whose, and where they begin."""
    with np.load(DATA / "hapt.npz") as stored:
        signal, label, user, recording = (stored[name] for name in ("x", "label", "user", "exp"))
    starts = np.arange(0, len(signal) - LENGTH, STEP)
    kinds = np.lib.stride_tricks.sliding_window_view(label, LENGTH)[starts]
    ends = starts + LENGTH - 1
    of_one = (kinds == kinds[:, :1]).all(axis=1) & (user[starts] == user[ends])
    of_one &= (recording[starts] == recording[ends]) & (kinds[:, 0] >= 1) & (kinds[:, 0] <= 6)
    starts = starts[of_one]
    x = np.stack([signal[start : start + LENGTH].T for start in starts])
    own = user[starts] <= 21
    mean, spread = (f(x[own], axis=(0, 2), keepdims=True) for f in (np.mean, np.std))
    return ((x - mean) / spread).astype(np.float32), label[starts].astype(np.int32) - 1, user[starts], starts


def factory(x: Any, y: Any) -> ct.Model:
    """The network of the personalisation tutorial, as PyTorch begins it, trained by us."""
    import torch
    from torch import nn

    torch.manual_seed(0)
    network = nn.Sequential(
        nn.Conv1d(6, 32, 7, stride=2, padding=3), nn.ReLU(), nn.Conv1d(32, 64, 5, stride=2, padding=2), nn.ReLU(),
        nn.Conv1d(64, 64, 3, stride=2, padding=1), nn.ReLU(), nn.AdaptiveAvgPool1d(1), nn.Flatten(), nn.Linear(64, 6),
    )  # fmt: skip
    file = io.BytesIO()
    names = {"input_names": ["window"], "output_names": ["logits"], "dynamic_axes": {"window": {0: "batch"}}}
    torch.onnx.export(network, (torch.zeros(1, 6, LENGTH),), file, dynamo=False, **names)
    rule = ct.optimizers.Adam(learning_rate=1e-3)
    session = ct.TrainSession(file.getvalue(), ct.TrainConfig(loss=ENTROPY, optimizer=rule, batch_size=64))
    session.fit(x, y, epochs=6, verbose=0)
    return ct.load(file.getvalue()).with_parameters(session.parameters)


def phone(seeds: int, only: str | None) -> None:
    """The best that last or all reach is of one rate and fifteen epochs, as in the tutorial."""
    x, y, owner, starts = windows()
    own = owner <= 21
    model = factory(x[own], y[own])
    others = np.flatnonzero(~own)
    print(
        "| phone | seed | chosen | parameters | chosen: right | last | everything | choosing, s | foreseen, s | taken, s |"
    )
    print("|---|---|---|---|---|---|---|---|---|---|")
    found: Found = {}
    shifts = {"turned": (x[:, [2, 1, 0, 5, 4, 3]], y), "upright": (x, y), "renamed": (x, (y + 1) % 6)}
    for name, (held, answers) in shifts.items():
        if only not in {None, name}:
            continue
        for seed in range(seeds):
            lesson = np.random.default_rng(seed).permutation(others)[:LESSON]
            distance = np.abs(starts[others][:, None] - starts[lesson]).min(axis=1)
            test = others[distance >= LENGTH]
            pair, judged = (held[lesson], answers[lesson]), (held[test], answers[test])
            choice = ct.choose(model, pair, memory="16MB", seconds=60, seed=seed)
            right, taken = trained(choice, choice.config, pair, judged, seed)
            rest = [trained(choice, plain(model, what), pair, judged, seed)[0] for what in (1, "all")]
            row = choice.chosen
            found.setdefault(name, []).append((right, rest[0], rest[1], taken / (row.seconds or 1.0)))
            print(
                f"| {name} | {seed} | {row.what} | {row.parameters:,} | {right:.3f} | {rest[0]:.3f} | {rest[1]:.3f} "
                f"| {choice.seconds:.1f} | {row.seconds:.2f} | {taken:.2f} |",
                flush=True,
            )
    summary(found, ("chosen", "last", "everything", "taken ÷ foreseen"))


def summary(found: Found, heads: Sequence[str]) -> None:
    """Means and spreads (standard deviations) over the seeds."""
    print(f"\n| | seeds | {' | '.join(heads)} |\n|---|---|{'---|' * len(heads)}")
    for name, rows in found.items():
        cells = [f"{np.mean(column):.3f} ± {np.std(column):.3f}" for column in zip(*rows, strict=True)]
        print(f"| {name} | {len(rows)} | {' | '.join(cells)} |", flush=True)


def plain(model: ct.Model, what: Any) -> ct.TrainConfig:
    """Adam at 0.001, fifteen epochs."""
    rule = ct.optimizers.Adam(learning_rate=1e-3)
    return ct.TrainConfig(loss=ENTROPY, optimizer=rule, batch_size=10, epochs=15, trainable=what)


def trained(choice: Choice, config: ct.TrainConfig, pair: Any, judged: Any, seed: int) -> tuple[float, float]:
    """Right answers of others, and the processor time of the fit."""
    session = ct.TrainSession(
        choice.model, config.replace(metrics=["sparse_categorical_accuracy"]), seed=seed
    )
    began = time.process_time()
    session.fit(*pair, verbose=0)
    taken = time.process_time() - began
    assert (
        choice.budget.memory is None
        or config.memory_budget is None
        or session.plan.total_bytes <= choice.budget.memory
    )
    return session.evaluate(*judged)["sparse_categorical_accuracy"], taken


def cifar(count: int, seed: int, inverted: bool = False) -> tuple[Any, Any]:
    """Pictures of 224 pixels, -1 … 1: to train and to judge."""
    from PIL import Image

    with np.load(DATA / "cifar10_small.npz") as stored:
        x, y, x_test, y_test = (stored[name] for name in ("x_train", "y_train", "x_test", "y_test"))
    some = np.random.default_rng(seed).permutation(len(x))[:count]
    tested = np.random.default_rng(1).permutation(len(x_test))[:500]

    def prepared(images: Any) -> Any:
        large = [Image.fromarray(image).resize((224, 224), Image.Resampling.BILINEAR) for image in images]
        scaled = np.stack(large).astype(np.float32) / 127.5 - 1
        return -scaled if inverted else scaled

    return (prepared(x[some]), y[some].astype(np.int32)), (
        prepared(x_test[tested]),
        y_test[tested].astype(np.int32),
    )


def animals(seed: int) -> tuple[Any, Any]:
    """Fifteen of each to train, five to judge."""
    data = ct.data.images(DATA / "animals", validation=0.25)
    tensor = ct.load(NET).module.main.inputs[0]
    how = replace(data.describe(tensor, None), mean=(127.5,), std=(127.5,))
    parts = data.parts(seed)
    assert parts[1] is not None
    train, held_out = (
        (part.open(tensor, how)[:], part.labels.astype(np.int32)) for part in (parts[0], parts[1])
    )
    return train, held_out


def pictures(pair: Any, judged: Any, budgets: Sequence[str], seconds: float, seed: int, found: Found) -> None:
    """Chosen, and the best of the last layers that fit the same budget, at the rate that was best in the trials.

    A budget changes no more than the rounding of what is trained: what was trained once is not trained again for the next.
    """
    model = ct.load(NET).with_head(int(pair[1].max()) + 1)
    known: dict[tuple[str, float, int | None], tuple[float, float]] = {}

    def of(choice: Choice, what: str) -> tuple[float, float]:
        config = choice.of(what)
        key = what, config.rule.base_learning_rate, config.epochs
        if key not in known:
            known[key] = trained(choice, config, pair, judged, seed)
        return known[key]

    for memory in budgets:
        config = ct.TrainConfig(loss=ENTROPY, optimizer="adam", batch_size=16)
        choice = ct.choose(model, pair, memory=memory, seconds=seconds, seed=seed, config=config)
        row = choice.chosen
        right, taken = of(choice, row.what)
        last = [
            row.what
            for row in choice.rows
            if row.what.startswith("last") and "," not in row.what and not row.refused
        ]
        others = {what: of(choice, what)[0] for what in last}
        best = max(others, key=lambda what: others[what])
        found.setdefault(memory, []).append((right, others[best], taken / (row.seconds or 1.0)))
        print(
            f"| {memory} | {seed} | {row.what} | {row.parameters:,} | {right:.3f} | {others[best]:.3f} ({best}) "
            f"| {choice.seconds:.0f} | {row.seconds:.1f} | {taken:.1f} |",
            flush=True,
        )


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", choices=["phone", "cifar", "inverted", "animals"])
    parser.add_argument("--only", choices=["turned", "upright", "renamed"], help="one phone alone")
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--count", type=int, default=400, help="pictures to train on (default: %(default)s)")
    parser.add_argument(
        "--seconds", type=float, default=400, help="for choosing and training (default: %(default)s)"
    )
    parser.add_argument("--budgets", default=",".join(BUDGETS))
    options = parser.parse_args()
    if options.what == "phone":
        phone(options.seeds, options.only)
        return 0
    print(
        "| memory | seed | chosen | parameters | right | best last layers | choosing, s | foreseen, s | taken, s |"
    )
    print("|---|---|---|---|---|---|---|---|---|")
    found: Found = {}
    for seed in range(options.seeds):
        is_animals = options.what == "animals"
        pair, judged = animals(seed) if is_animals else cifar(options.count, seed, options.what == "inverted")
        pictures(pair, judged, options.budgets.split(","), options.seconds, seed, found)
    summary(found, ("chosen", "best last layers", "taken ÷ foreseen"))
    return 0


if __name__ == "__main__":
    sys.exit(main())
