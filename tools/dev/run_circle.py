#!/usr/bin/env python3
"""Our column of the benchmark: trains exactly what the peers train. Run by tools/dev/bench.py --runner.

The models of w2, w3 and w5 end in logits, and every peer takes the cross-entropy of logits; here the graph decides
(`from_logits=None`), which says the same. `common` and `nets` are modules of ../shared/bench.
"""

from __future__ import annotations

import argparse
import importlib.metadata
from typing import Any

import common
import nets


def load(args: argparse.Namespace) -> Any:
    """What the timing of the import covers."""
    import circle_train as ct

    return ct


class Session(common.Session):  # type: ignore[misc]
    """One workload, its data in memory."""

    def __init__(self, ct: Any, args: argparse.Namespace) -> None:
        import numpy as np

        self.version = importlib.metadata.version("circle-train")
        self.ct, self.threads, self.spec = ct, args.threads, nets.WORKLOADS[args.workload]
        x, y = nets.load_data(args.workload)
        self.x = [np.ascontiguousarray(batch) for batch in x]
        self.y = [np.ascontiguousarray(batch) for batch in nets.targets(args.workload, y)]
        suffix = "onnx" if args.workload == "w5" else "tflite"
        self.path = str(nets.models_dir() / f"{args.workload}.{suffix}")

    def prepare(self) -> None:
        """Everything from the model's file to the bound program."""
        ct, spec = self.ct, self.spec
        adam = {"learning_rate": spec["lr"], "epsilon": 1e-7}
        decay = spec.get("weight_decay")
        config = ct.TrainConfig(
            loss="mse" if spec["loss"] == "mse" else "categorical_crossentropy",
            optimizer=ct.optimizers.AdamW(weight_decay=decay, **adam)
            if decay
            else ct.optimizers.Adam(**adam),
            batch_size=spec["batch"],
            trainable=("last", spec["last_ops"]) if "last_ops" in spec else "all",
        )
        self.session = ct.TrainSession(self.path, config, threads=self.threads)
        self.session.prepare()

    @property
    def extra(self) -> dict[str, float]:
        """What the plan foresees, asked for when everything is measured."""
        return {"planned_mb": self.session.plan.total_bytes / 2**20}

    def step(self, i: int) -> float:
        """One training step; the loss."""
        j = i % len(self.x)
        return float(self.session.train_step(self.x[j], self.y[j]).loss)


if __name__ == "__main__":
    common.main("circle", load, Session)
