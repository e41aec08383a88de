#!/usr/bin/env python3
"""Networks shipped in integers, by circle_train and by others, all judged by LiteRT: the table of docs/integers.md.

python tools/dev/integers/shipping.py FOLDER   every network and way; what is found in FOLDER is not made again
python tools/dev/integers/shipping.py FOLDER --nets mobilenet --ways ptq aware
python tools/dev/integers/shipping.py FOLDER --write                 puts what FOLDER/results.json holds into the page

The data are ../shared/data/cifar10_small.npz and Debian's dataset-fashion-mnist. AI Edge Quantizer runs in AEQ_PYTHON,
TensorFlow's quantizer in TF_PYTHON (interpreters that have the packages); without one its cells stay empty.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from shipping_nets import NETS, Net
from shipping_peers import by_edge_quantizer, by_tensorflow

import circle_train as ct

PAGE = Path(__file__).resolve().parents[3] / "docs" / "integers.md"
BEGIN, END = (
    "<!-- measured: written by tools/dev/integers/shipping.py -->",
    "<!-- end of what is measured -->",
)
CALIBRATION = 100
HEADINGS = {
    "float": "floats",
    "ptq": "`quantize=ct.Int8(…)`",
    "uncorrected": "without `correct_bias`",
    "aware": "after an epoch that knows",
    "edge": "AI Edge Quantizer",
    "tensorflow": "TensorFlow's",
}


def judged(path: Path, net: Net) -> float:
    """Of LiteRT's answers to the test pictures, the share that is right."""
    from ai_edge_litert.interpreter import Interpreter

    theirs = Interpreter(str(path), num_threads=1)
    theirs.allocate_tensors()
    given, made = theirs.get_input_details()[0], theirs.get_output_details()[0]
    scale, zero = given["quantization"]
    right = 0
    for picture, label in zip(net.data.x_test, net.data.y_test, strict=True):
        x = net.prepare(picture[None])
        if given["dtype"] != np.float32:
            limits = np.iinfo(given["dtype"])
            x = np.clip(np.rint(x / scale + zero), limits.min, limits.max).astype(given["dtype"])
        theirs.set_tensor(given["index"], x)
        theirs.invoke()
        right += int(theirs.get_tensor(made["index"]).argmax()) == int(label)
    return right / len(net.data.y_test)


def calibration(net: Net) -> np.ndarray:
    """The same samples for all: every so many of the training pictures."""
    return net.prepare(net.data.x[:: max(len(net.data.x) // CALIBRATION, 1)][:CALIBRATION])


def as_it_is(net: Net, floats: Path, out: Path) -> None:
    out.write_bytes(floats.read_bytes())


def after_training(net: Net, floats: Path, out: Path, **settings: Any) -> None:
    """Calibrated when it has learned."""
    session = ct.TrainSession(
        floats, ct.TrainConfig(loss="sparse_categorical_crossentropy", trainable="none")
    )
    session.export(out, quantize=ct.Int8(calibration=calibration(net), **settings))


def with_an_epoch(net: Net, floats: Path, out: Path) -> None:
    """One epoch over the training pictures that rounds as the shipped model does."""
    config = ct.TrainConfig(
        loss="sparse_categorical_crossentropy",
        optimizer=ct.optimizers.Adam(learning_rate=net.rate),
        batch_size=16,
        quantize=ct.Int8(calibration=calibration(net), epochs=1),
    )
    session = ct.TrainSession(floats, config)
    session.fit(net.prepare(net.data.x), net.data.y, epochs=1, verbose=0)
    session.export(out, quantize=ct.Int8(calibration=calibration(net)))


def by_others(run: Callable[[Path, np.ndarray, Path], None]) -> Callable[[Net, Path, Path], None]:
    return lambda net, floats, out: run(floats, calibration(net), out)


WAYS: dict[str, Callable[[Net, Path, Path], None]] = {
    "float": as_it_is,
    "ptq": after_training,
    "uncorrected": partial(after_training, correct_bias=False),
    "aware": with_an_epoch,
    "edge": by_others(by_edge_quantizer),
    "tensorflow": by_others(by_tensorflow),
}


def measure(folder: Path, name: str, way: str) -> None:
    """One cell, kept with the others."""
    net, kept = NETS[name](), folder / "results.json"
    floats, out = folder / f"{name}.tflite", folder / f"{name}-{way}.tflite"
    if not floats.exists():
        net.train(floats)
    start = time.process_time()
    WAYS[way](net, floats, out)
    spent = time.process_time() - start
    found = {"accuracy": judged(out, net), "seconds": round(spent, 1), "bytes": out.stat().st_size}
    print(f"{name} {way}: {found}", flush=True)
    results = json.loads(kept.read_text()) if kept.exists() else {}
    results.setdefault(name, {})[way] = found
    kept.write_text(json.dumps(results, indent=1))


def table(folder: Path) -> str:
    results = json.loads((folder / "results.json").read_text())
    lines = ["| network | " + " | ".join(HEADINGS.values()) + " |", "|---" * (len(HEADINGS) + 1) + "|"]
    for name, ways in results.items():
        cells = [f"{ways[way]['accuracy']:.3f}" if way in ways else "" for way in HEADINGS]
        lines.append(f"| {NETS[name].__doc__} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("--nets", nargs="+", choices=list(NETS), default=list(NETS))
    parser.add_argument("--ways", nargs="+", choices=list(WAYS), default=list(WAYS))
    parser.add_argument("--write", action="store_true", help="the table into the page")
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    if not options.write:
        for name in options.nets:
            for way in options.ways:
                try:
                    measure(options.folder, name, way)
                except (LookupError, RuntimeError) as missing:  # RuntimeError: LiteRT refuses the file
                    print(f"{name} {way}: {missing}", flush=True)
        return
    page = PAGE.read_text(encoding="utf-8")
    before, after = page.split(BEGIN)[0], page.split(BEGIN)[1].split(END, 1)[1]
    PAGE.write_text(f"{before}{BEGIN}\n{table(options.folder)}\n{END}{after}", encoding="utf-8")


if __name__ == "__main__":
    main()
