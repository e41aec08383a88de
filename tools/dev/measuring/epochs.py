#!/usr/bin/env python3
"""Seconds of each epoch of a transfer learning, without and with the frozen beginning's results kept.

python tools/dev/measuring/epochs.py MODEL [--last N] [--samples N] [--batch-size N]
"""

from __future__ import annotations

import argparse
import time
from typing import Any

import numpy as np

import circle_train as ct


class Clock(ct.callbacks.Callback):
    """Notes how long each epoch takes, its validation included."""

    def on_train_begin(self) -> None:
        self.seconds: list[float] = []

    def on_epoch_begin(self, epoch: int) -> None:
        self.started = time.perf_counter()

    def on_epoch_end(self, epoch: int, logs: Any) -> None:
        self.seconds.append(time.perf_counter() - self.started)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model")
    parser.add_argument("--last", type=int, default=5, help="how many operators are trained")
    parser.add_argument("--samples", type=int, default=208)
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--epochs", type=int, default=5)
    args = parser.parse_args()
    model = ct.load(args.model)
    numbers = np.random.default_rng(0)
    x, y = (
        [numbers.standard_normal((args.samples, *t.shape[1:]), np.float32) for t in group]
        for group in (model.inputs, model.outputs)
    )
    config = ct.TrainConfig("mse", ct.optimizers.Adam(1e-4), args.batch_size, trainable=("last", args.last))
    results = []
    for keep in (False, "auto"):
        session, clock = ct.TrainSession(model, config), Clock()
        session.prepare()
        session.fit(
            x, y, epochs=args.epochs, validation_split=0.2, callbacks=[clock], verbose=0, keep_frozen=keep
        )
        kept = f"{session.kept_bytes / 1e6:.1f} MB kept" if session.kept_bytes else "nothing kept"
        print(f"{' '.join(f'{second:.4f}' for second in clock.seconds)} s  {kept}")
        results.append(session.parameters.flat().tobytes())
    print("the same weights" if results[0] == results[1] else "THE WEIGHTS DIFFER")


if __name__ == "__main__":
    main()
