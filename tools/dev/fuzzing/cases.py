"""What the fuzzer feeds to circle_train, and how far each case goes: a target is a kind of file.

A case is a target and a number: the number decides the seed, the damage and whatever else is random, so that it says
everything. Seeds are one model for each example of each operator, the tests' small models and files, and what earlier
runs have found (tests/data/fuzz).
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from fuzzing import files, learned, models, records, samples
from fuzzing.damage import Rng, damaged_bytes, damaged_json


@dataclass(frozen=True)
class Target:
    """A kind of file: what whole ones look like, how they are damaged, what is done with a damaged one."""

    seeds: Callable[[], Sequence[Any]]
    damage: Callable[[Any, Rng], Any]
    run: Callable[[Any, Rng, Path], None]
    suffix: str

    def made(self, name: str, number: int) -> tuple[Any, Rng]:
        """The file of a case, and the randomness that is left for what is done with it.

        Numbers below 0 are what earlier runs have found, as it was found.
        """
        rng = np.random.default_rng(
            [int.from_bytes(hashlib.sha256(name.encode()).digest()[:4], "big"), abs(number)]
        )
        seeds = self.seeds()
        if number < 0:
            return seeds[number], rng
        return self.damage(seeds[int(rng.integers(len(seeds)))], rng), rng


TARGETS = {
    "model": Target(models.models, models.damaged_model, models.run_model, ".circle"),
    "onnx": Target(models.onnx_models, models.damaged_onnx, models.run_onnx, ".onnx"),
    "checkpoint": Target(learned.checkpoints, learned.damaged_checkpoint, learned.run_checkpoint, ""),
    "package": Target(learned.packages, learned.damaged_package, learned.run_package, ""),
    "settings": Target(learned.settings, damaged_json, learned.run_settings, ".json"),
    "data": Target(files.data_files, files.damaged_data, files.run_data, ""),
    "image": Target(files.images, files.damaged_image, files.run_image, ""),
    "sound": Target(samples.recordings, damaged_bytes, samples.run_sound, ".wav"),
    "text": Target(samples.tokenizers, damaged_json, samples.run_text, ".json"),
    "table": Target(samples.tables, files.damaged_data, samples.run_table, ""),
    "described": Target(samples.described, samples.damaged_description, samples.run_described, ".tflite"),
    "quantized": Target(models.models, models.damaged_model, samples.run_quantized, ".circle"),
}
if records.has_flower():
    TARGETS["record"] = Target(records.records, records.damaged_record, records.run_record, "")
