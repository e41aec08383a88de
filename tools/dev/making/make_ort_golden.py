"""Writes tests/data/ort: small models of our own, trained by onnxruntime-training 1.19.2, and its checkpoints.

ORT_PYTHON=/path/to/python python tools/dev/making/make_ort_golden.py
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

ROOT = Path(__file__).resolve().parents[3]
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


def images() -> onnx.ModelProto:
    """Convolution, batch normalisation, dropout with a seed, a dense layer."""
    rng = np.random.default_rng(13)
    shapes = {
        "conv.weight": (5, 2, 3, 3),
        "conv.bias": (5,),
        "bn.weight": (5,),
        "bn.bias": (5,),
        "bn.mean": (5,),
    }
    values = {
        name: rng.normal(0, 0.4, shape)
        for name, shape in (shapes | {"fc.weight": (3, 5), "fc.bias": (3,)}).items()
    }
    values["bn.var"] = rng.uniform(0.5, 1.5, 5)
    initializers = [numpy_helper.from_array(value.astype(np.float32), name) for name, value in values.items()]
    initializers += [
        numpy_helper.from_array(np.float32(0.4), "ratio"),
        numpy_helper.from_array(np.array(True), "mode"),
    ]
    nodes = [
        helper.make_node("Conv", ["x", "conv.weight", "conv.bias"], ["c"], pads=[1, 1, 1, 1]),
        helper.make_node(
            "BatchNormalization", ["c", "bn.weight", "bn.bias", "bn.mean", "bn.var"], ["b"], momentum=0.8
        ),
        helper.make_node("Relu", ["b"], ["r"]),
        helper.make_node("GlobalAveragePool", ["r"], ["p"]),
        helper.make_node("Flatten", ["p"], ["f"]),
        helper.make_node("Dropout", ["f", "ratio", "mode"], ["d", "mask"], seed=5),
        helper.make_node("Gemm", ["d", "fc.weight", "fc.bias"], ["y"], transB=1),
    ]
    inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 2, 5, 5])]
    outputs = [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", 3])]
    graph = helper.make_graph(nodes, "images", inputs, outputs, initializers)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 12)], ir_version=8)


def make_images(python: str) -> None:
    """One run with the batch's statistics and random masks."""
    onnx.save(images(), TARGET / "images.onnx")
    rng = np.random.default_rng(14)
    data = {f"in0/{step}": rng.normal(size=(4, 2, 5, 5)).astype(np.float32) for step in range(STEPS)}
    data |= {f"in1/{step}": rng.integers(0, 3, 4) for step in range(STEPS)}
    names = [i.name for i in images().graph.initializer]
    with tempfile.TemporaryDirectory() as folder:
        np.savez(f"{folder}/data.npz", **data)
        job = {
            "onnx": str(TARGET / "images.onnx"),
            "data": f"{folder}/data.npz",
            "out": f"{folder}/out.npz",
            "requires_grad": [name for name in names if name.split(".")[-1] in ("weight", "bias")],
            "frozen": ["bn.mean", "bn.var"],
            "loss": "CrossEntropyLoss",
            "optimizer": "SGD",
            "lr": 0.1,
        }
        Path(folder, "jobs.json").write_text(json.dumps([job]))
        subprocess.run([python, str(PEER), f"{folder}/jobs.json"], check=True, capture_output=True)
        with np.load(f"{folder}/out.npz") as found:
            assert "error" not in found.files, str(found["error"])
            np.savez_compressed(TARGET / "images.npz", **data, **found)


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
    make_images(python)


if __name__ == "__main__":
    main()
