"""Others who make integers of a .tflite file of floats, each in an interpreter of its own."""

from __future__ import annotations

import os
import subprocess
import tempfile
from pathlib import Path

import numpy as np

EDGE = """
import sys, numpy as np
from ai_edge_quantizer import quantizer, recipe
from ai_edge_litert.interpreter import Interpreter
floats, samples, out = sys.argv[1:]
plain = Interpreter(floats)
signatures = plain.get_signature_list()
name = next(iter(signatures), None)
inputs = signatures[name]["inputs"] if signatures else [plain.get_input_details()[0]["name"]]
made = quantizer.Quantizer(floats)
made.load_quantization_recipe(recipe.static_wi8_ai8())
known = made.calibrate({name: [{inputs[0]: x[None]} for x in np.load(samples)]})
open(out, "wb").write(bytes(made.quantize(known).quantized_model))
"""
TENSORFLOW = """
import sys, numpy as np
from tensorflow import int8, float32
from tensorflow.lite.python.optimize import calibrator
floats, samples, out = sys.argv[1:]
made = calibrator.Calibrator(open(floats, "rb").read())
data = lambda: ([x[None]] for x in np.load(samples))
open(out, "wb").write(made.calibrate_and_quantize(data, float32, float32, allow_float=False, activations_type=int8))
"""


def by_edge_quantizer(floats: Path, samples: np.ndarray, out: Path) -> None:
    """Google's AI Edge Quantizer: 8 bit weights by channel, 8 bit activations."""
    _run("AEQ_PYTHON", EDGE, floats, samples, out)


def by_tensorflow(floats: Path, samples: np.ndarray, out: Path) -> None:
    """What TensorFlow's converter does with a representative dataset, on the same float file."""
    _run("TF_PYTHON", TENSORFLOW, floats, samples, out)


def _run(variable: str, code: str, floats: Path, samples: np.ndarray, out: Path) -> None:
    python = os.environ.get(variable)
    if not python:
        raise LookupError(f"{variable} names no interpreter")
    with tempfile.TemporaryDirectory() as folder:
        kept = Path(folder) / "samples.npy"
        np.save(kept, samples)
        words = [python, "-c", code, str(floats.resolve()), str(kept), str(out.resolve())]
        done = subprocess.run(words, capture_output=True, text=True, check=False, cwd=folder)
    if done.returncode:
        raise LookupError(f"failed: {done.stderr.strip().splitlines()[-1]}")
