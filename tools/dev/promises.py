#!/usr/bin/env python3
"""The three numbers of the README, measured.

python tools/dev/promises.py                                           what a clone can repeat
python tools/dev/promises.py --animals FOLDER --model NET              and the photographs

Four animals from sixty photographs; trainings killed with -9 and resumed to the same bytes; the same bits on 1 and 8 threads.
"""

from __future__ import annotations

import argparse
import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from circle_train.cli.demo import digits
from circle_train.cli.main import main as circle_train

SOURCE = Path(__file__).resolve().parents[2] / "circle_train/cli/demo_data/digits_0_to_4.circle"
EPOCHS, KILLS = 30, 5


def train(folder: str, *words: str) -> list[str]:
    """The command of a training of digits into a run folder."""
    settings = ["--loss", "sparse_categorical_crossentropy", "--optimizer", "adam", "--epochs", str(EPOCHS)]
    data = ["--input", "x.npy", "--expected", "y.npy", "--validation-split", "0.2"]
    begin = [sys.executable, "-m", "circle_train", "train", str(SOURCE), *data, *settings]
    return [*begin, "--run-dir", folder, "--checkpoint-every", "7", *words]


def run(words: list[str], place: Path) -> None:
    subprocess.run(words, cwd=place, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def kills(place: Path, whole: Path) -> str:
    """A run that is killed at random moments and gone on with ends in the bytes of one that was left alone."""
    moments, killed, words = random.Random(0), 0, train("killed")
    while killed < KILLS:
        process = subprocess.Popen(words, cwd=place, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        time.sleep(moments.uniform(0.3, 1.5))
        killed += process.poll() is None
        process.send_signal(signal.SIGKILL)
        process.wait()
        if (place / "killed" / "report.html").exists():
            break
        if (place / "killed" / "run.json").exists():
            words = [sys.executable, "-m", "circle_train", "train", "--resume", "killed"]
    run(words, place)
    same = (place / "killed" / "model.circle").read_bytes() == (whole / "model.circle").read_bytes()
    return f"killed -9 {killed} times and resumed: {'the same bytes' if same else 'OTHER BYTES'}"


def threads(place: Path) -> str:
    """Weights after thousands of steps on one thread and on eight."""
    for count in (1, 8):
        run(train(f"threads{count}", "--threads", str(count)), place)
    one, eight = ((place / f"threads{count}" / "model.circle").read_bytes() for count in (1, 8))
    return f"1 thread and 8: {'the same bits' if one == eight else 'OTHER BITS'}"


def animals(place: Path, folder: Path, model: Path) -> None:
    """Fifteen of each to train, five held out."""
    words = ["--model", str(model), "-o", str(place / "animals.tflite"), "--validation", "0.25"]
    circle_train(["finetune", str(folder), *words])


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--animals", type=Path)
    parser.add_argument("--model", type=Path)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        place = Path(scratch)
        if options.animals and options.model:
            animals(place, options.animals, options.model)
        x, y = digits()
        np.save(place / "x.npy", x)
        np.save(place / "y.npy", np.where(y < 5, y, 0))
        run(train("whole"), place)
        said = [kills(place, place / "whole"), threads(place)]
        print("\n".join(said))
        return int("OTHER" in " ".join(said))


if __name__ == "__main__":
    sys.exit(main())
