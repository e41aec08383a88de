"""Writes tests/data/ort: small models of our own, trained by onnxruntime-training 1.19.2, and its checkpoints.

ORT_PYTHON=/path/to/python python tools/dev/make_ort_golden.py
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

ROOT = Path(__file__).resolve().parents[2]
TARGET = ROOT / "tests" / "data" / "ort"
PEER = ROOT / "tests" / "ort_peer.py"
NAMES = ["fc1.weight", "fc1.bias", "fc2.weight", "fc2.bias"]
STEPS, SAVED = 6, 3


def network() -> onnx.ModelProto:
    """Two dense layers, 6 → 5 → 3."""
    rng = np.random.default_rng(11)
    shapes = [(5, 6), (5,), (3, 5), (3,)]
    initializers = [
        numpy_helper.from_array(rng.normal(0, 0.4, shape).astype(np.float32), name)
        for name, shape in zip(NAMES, shapes, strict=True)
    ]
    nodes = [
        helper.make_node("Gemm", ["x", "fc1.weight", "fc1.bias"], ["h"], transB=1),
        helper.make_node("Tanh", ["h"], ["t"]),
        helper.make_node("Gemm", ["t", "fc2.weight", "fc2.bias"], ["y"], transB=1),
    ]
    inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 6])]
    outputs = [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", 3])]
    graph = helper.make_graph(nodes, "mlp", inputs, outputs, initializers)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 14)], ir_version=8)


def main() -> None:
    TARGET.mkdir(exist_ok=True)
    onnx.save(network(), TARGET / "mlp.onnx")
    rng = np.random.default_rng(12)
    data = {}
    for step in range(STEPS):
        data[f"in0/{step}"] = rng.normal(size=(4, 6)).astype(np.float32)
        data[f"in1/{step}"] = rng.integers(0, 3, 4)
    jobs = []
    with tempfile.TemporaryDirectory() as folder:
        np.savez(f"{folder}/data.npz", **data)
        for optimizer in ("AdamW", "SGD"):
            jobs.append(
                {
                    "onnx": str(TARGET / "mlp.onnx"),
                    "data": f"{folder}/data.npz",
                    "out": f"{folder}/{optimizer}.npz",
                    "requires_grad": NAMES[1:],
                    "frozen": NAMES[:1],
                    "loss": "CrossEntropyLoss",
                    "optimizer": optimizer,
                    "lr": 0.02,
                    "save_after": SAVED,
                    "checkpoint": str(TARGET / f"checkpoint_{optimizer.lower()}"),
                    "nominal": str(TARGET / f"nominal_{optimizer.lower()}"),
                    "properties": {"epoch": 4, "best": 0.25, "who": "server"},
                }
            )
        jobs.append({**jobs[0], "checkpoint": str(TARGET / "checkpoint_weights"), "with_optimizer": False})
        Path(folder, "jobs.json").write_text(json.dumps(jobs))
        python = os.environ.get("ORT_PYTHON") or sys.exit(
            "set ORT_PYTHON to a Python that has onnxruntime-training"
        )
        subprocess.run([python, str(PEER), f"{folder}/jobs.json"], check=True, capture_output=True)
        for optimizer in ("AdamW", "SGD"):
            with np.load(f"{folder}/{optimizer}.npz") as found:
                assert "error" not in found.files, str(found["error"])
                np.savez_compressed(TARGET / f"{optimizer.lower()}.npz", **data, **found)
    (TARGET / "nominal_sgd").unlink()


if __name__ == "__main__":
    main()
