#!/usr/bin/env python3
"""A hundred thousand photographs: the memory that they take, and how fast they come.

python tools/dev/measuring/photographs.py                    100,000 synthetic photographs, as links to 200 different files
python tools/dev/measuring/photographs.py --count 5000       fewer
python tools/dev/measuring/photographs.py --course 30000   the memory of a whole fine-tuning, beside that of 100

Reads one epoch of batches as fit does, beside which two threads decode the same files as fast as they can. In turns, so
that what else the machine does falls on both alike. Memory is compared with that of as many batches from 100 photographs.
"""

from __future__ import annotations

import argparse
import os
import resource
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
from PIL import Image

import circle_train as ct
from circle_train.data.lazy import THREADS, normalised
from circle_train.data.pictures import read_image
from circle_train.format.metadata.description import Description
from circle_train.ir import DType, Tensor, TensorType

ROOT = Path(__file__).parents[3]
SIDE, DIFFERENT, BATCH, CLASSES = 500, 200, 32, 4
HOW = Description(kind="image", size=(224, 224), mean=(127.5,), std=(127.5,))


def photographs(folder: Path, count: int) -> Path:
    """JPEGs of smooth noise; most are further names of the first ones, which costs the disk nothing and the decoder all."""
    random = np.random.default_rng(0)
    for label in range(CLASSES):
        (folder / f"class{label}").mkdir(parents=True)
    for number in range(count):
        path = folder / f"class{number % CLASSES}" / f"{number:06}.jpg"
        if number < DIFFERENT:
            small = random.integers(0, 256, (SIDE // 10, SIDE // 10, 3), np.uint8)
            Image.fromarray(small).resize((SIDE, SIDE), Image.Resampling.BICUBIC).save(path, quality=90)
        else:
            first = number % DIFFERENT
            os.link(folder / f"class{first % CLASSES}" / f"{first:06}.jpg", path)
    return folder


def by_threads(files: list[Path]) -> float:
    """Seconds in which two threads decode, resize and scale them, and nothing else."""
    began = time.perf_counter()
    with ThreadPoolExecutor(THREADS) as pool:
        for _ in pool.map(lambda file: normalised(read_image(file, HOW), HOW), files):
            pass
    return time.perf_counter() - began


def by_batches(array: object, places: np.ndarray) -> float:
    """Seconds in which they come as the batches of a fit."""
    from circle_train.data.lazy import ahead

    began = time.perf_counter()
    cuts = (places[at : at + BATCH] for at in range(0, len(places), BATCH))
    for _ in ahead(array.__getitem__, cuts):  # type: ignore[attr-defined]
        pass
    return time.perf_counter() - began


def memory() -> float:
    """The most that the process has had, in MB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3


def course(count: int) -> float:
    """Megabytes that a process has had at the most, which fine-tunes a tiny network on so many photographs."""
    with tempfile.TemporaryDirectory() as scratch:
        folder = photographs(Path(scratch), count)
        code = (
            "import sys, resource, circle_train as ct; from picture_net import picture_net; "
            "ct.finetune(picture_net(), ct.data.images(sys.argv[1]), epochs=2, verbose=0); "
            "print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3)"
        )
        paths = [str(ROOT / "tests/nets"), str(ROOT), os.environ.get("PYTHONPATH", "")]
        told = subprocess.run(
            [sys.executable, "-c", code, str(folder)],
            env=os.environ | {"PYTHONPATH": os.pathsep.join(paths)},
            check=True,
            stdout=subprocess.PIPE,
        )
    return float(told.stdout)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--count", type=int, default=100_000)
    parser.add_argument("--turn", type=int, default=1600, help="photographs of a turn")
    parser.add_argument("--read", type=int, help="how many of them are read (default: all)")
    parser.add_argument("--course", type=int, metavar="COUNT", help="the memory of a course on so many")
    options = parser.parse_args()
    if options.course:
        few, many = course(100), course(options.course)
        print(
            f"a course: {few:.0f} MB on 100 photographs, {many:.0f} MB on {options.course:,}, {many / few:.0%}"
        )
        return 0
    return reading(options)


def reading(options: argparse.Namespace) -> int:
    with tempfile.TemporaryDirectory() as scratch:
        folder = photographs(Path(scratch) / "photos", options.count)
        few = ct.data.images(photographs(Path(scratch) / "few", 100), validation=0.0)
        tensor = Tensor("x", TensorType(DType.FLOAT32, (1, 224, 224, 3)))
        by_batches(few.open(tensor, HOW), np.arange(options.turn) % 100)
        base = memory()
        data = ct.data.images(folder, validation=0.0)
        array, order = data.open(tensor, HOW), np.random.default_rng(0).permutation(len(data))[: options.read]
        listed, threads, batches, first = memory(), 0.0, 0.0, 0.0
        for at in range(0, len(order), options.turn):
            places = order[at : at + options.turn]
            batches += by_batches(array, places)
            first = first or memory()
            threads += by_threads([data.items[place] for place in places])
        count = len(order)
        print(
            f"{len(data):,} photographs of {SIDE}×{SIDE}, {count:,} read, {count / batches:.0f} a second in batches of {BATCH}"
        )
        print(
            f"two threads that do nothing else: {count / threads:.0f} a second; share {threads / batches:.0%}"
        )
        print(
            f"memory: {base:.0f} MB after {options.turn:,} readings of 100, {listed:.0f} MB with all names, "
            f"{first:.0f} MB after {options.turn:,}, {memory():.0f} MB after {count:,}"
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
