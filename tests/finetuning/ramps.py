"""Pictures of which the first layers, too, have something to learn."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from PIL import Image

import circle_train as ct
from circle_train.data.pictures import Images


def ramps(folder: Path, axis: int) -> Images:
    """Pictures that grow lighter one way or the other."""
    random = np.random.default_rng(0)
    for name in ("there", "back"):
        (folder / name).mkdir()
        for number in range(12):
            ramp = np.linspace(*random.uniform([20, 150], [100, 235]), 32)[:: 1 if name == "there" else -1]
            pixels = np.broadcast_to(ramp[:, None] if axis == 0 else ramp, (32, 32))
            Image.fromarray(pixels.astype(np.uint8)).convert("RGB").save(folder / name / f"{number}.png")
    return ct.data.images(folder, validation=0.5, scale=255.0)
