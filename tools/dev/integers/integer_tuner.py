#!/usr/bin/env python3
"""litert-tunner beside circle_train: the same integer model, the same shifted pictures, both by their defaults.

TUNER_PYTHON=… python tools/dev/integers/integer_tuner.py mlperf_tiny_resnet8_int8.tflite cifar10_small.npz

TUNER_PYTHON is an interpreter with litert-tunner and TensorFlow. As litert-tunner knows no AVERAGE_POOL_2D, that of ResNet8,
which spans its whole picture, is written as the MEAN that it is, for both. LiteRT judges.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
from integers import course, judged, shifted

import circle_train as ct
from circle_train.ir.graph import constant
from circle_train.ops.numeric.reduce import Mean

TUNER = """
import sys, time
import keras, litert_tunner, numpy as np
from litert_tunner.distillation.trainer import prepare_for_finetuning
path, data, out, trained = sys.argv[1:]
data, model = np.load(data), litert_tunner.load_model(path)
prepare_for_finetuning(model, trainable_pattern=trained)
model.compile(optimizer="adam", loss=keras.losses.SparseCategoricalCrossentropy())
start = time.process_time()
losses = model.fit(data["x"], data["y"], epochs=5, batch_size=32, verbose=0).history["loss"]
litert_tunner.save_model(model, out)
print(f"losses {losses[0]:.4f} ... {losses[-1]:.4f}, {time.process_time() - start:.1f} s of processor time")
"""
NAMES = ("net.tflite", "out.tflite", "theirs.tflite", "data.npz")
PATTERNS = {"biases and scales": ".*(bias|weight_scale)$", "all": ".*(bias|weight_scale|weight_int8)$"}


def without_pool(path: Path, out: Path) -> None:
    model = ct.load(path)
    graph = model.module.main
    for node in [node for node in graph.nodes if node.op.name == "AVERAGE_POOL_2D"]:
        axes = constant(np.array([1, 2], np.int32), "axes")
        assert axes.buffer is not None
        model.module.buffers.append(axes.buffer)
        graph.reconnect(node, [node.inputs[0], axes])
        node.op = Mean(keep_dims=True)
    model.save(out)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("model", type=Path)
    parser.add_argument("pictures", type=Path)
    options = parser.parse_args()
    python = os.environ.get("TUNER_PYTHON")
    if not python:
        sys.exit("TUNER_PYTHON names no interpreter with litert-tunner")
    data = np.load(options.pictures)
    x, y = shifted(data["x_train"])[:2000], data["y_train"].reshape(-1)[:2000].astype(np.int32)
    tx, ty = shifted(data["x_test"]), data["y_test"].reshape(-1)
    with tempfile.TemporaryDirectory() as folder:
        net, out, theirs, kept = (Path(folder) / name for name in NAMES)
        without_pool(options.model, net)
        np.savez(kept, x=x, y=y)
        print(f"before: {judged(net, tx, ty):.3f}", flush=True)
        session, spent = course(net, ct.TrainConfig(loss="sparse_categorical_crossentropy"), x, y, 1)
        session.export(out)
        print(f"circle_train: {judged(out, tx, ty):.3f}, {spent:.1f} s of processor time", flush=True)
        for name, pattern in PATTERNS.items():
            words = [python, "-c", TUNER, str(net), str(kept), str(theirs), pattern]
            done = subprocess.run(words, capture_output=True, text=True, check=False)
            if done.returncode:
                print(f"litert-tunner, {name}: {done.stderr.strip().splitlines()[-1]}", flush=True)
                continue
            said = done.stdout.strip().splitlines()[-1]
            print(f"litert-tunner, {name}: {judged(theirs, tx, ty):.3f}, {said}", flush=True)


if __name__ == "__main__":
    main()
