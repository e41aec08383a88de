"""Random networks trained here and by onnxruntime-training 1.19.2 in one run, step for step.

The wheel lives in an environment of its own (Python 3.11, numpy < 2); ORT_PYTHON names its interpreter.
"""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import circle_train as ct

pytest.importorskip("onnx")
PYTHON = os.environ.get("ORT_PYTHON", "")
COUNT, STEPS = 20, 5
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not PYTHON, reason="ORT_PYTHON does not name a Python with onnxruntime-training"),
]


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """Every network with its data and what the wheel made of it."""
    import onnx
    from random_onnx import CLASSES, network

    folder = tmp_path_factory.mktemp("ort")
    jobs = []
    for seed in range(COUNT):
        model, weights, shape = network(seed)
        rng = np.random.default_rng([seed, 1])
        data = {f"in0/{i}": rng.normal(size=(4, *shape)).astype(np.float32) for i in range(STEPS)}
        data |= {f"in1/{i}": rng.integers(0, CLASSES, 4) for i in range(STEPS)}
        onnx.save(model, folder / f"{seed}.onnx")
        np.savez(folder / f"{seed}.npz", **data)
        is_adamw = bool(rng.integers(2))
        jobs.append(
            {
                "onnx": str(folder / f"{seed}.onnx"),
                "data": str(folder / f"{seed}.npz"),
                "out": str(folder / f"{seed}.out.npz"),
                "requires_grad": weights,
                "loss": "CrossEntropyLoss",
                "optimizer": "AdamW" if is_adamw else "SGD",
                "lr": 0.01 if is_adamw else 0.1,
            }
        )
    (folder / "jobs.json").write_text(json.dumps(jobs))
    peer = Path(__file__).parent / "ort_peer.py"
    subprocess.run([PYTHON, str(peer), str(folder / "jobs.json")], check=True, capture_output=True)
    return jobs


@pytest.mark.parametrize("seed", range(COUNT))
def test_random_network_trains_alike(runs: list[dict[str, Any]], seed: int) -> None:
    job = runs[seed]
    optimizer: Any = ct.optimizers.SGD(job["lr"])
    if job["optimizer"] == "AdamW":
        optimizer = ct.optimizers.AdamW(job["lr"], style="ort", epsilon=1e-6, weight_decay=0.0)
    loss = ct.losses.SparseCategoricalCrossentropy(from_logits=True)
    config = ct.TrainConfig(loss=loss, optimizer=optimizer, batch_size=4, trainable=job["requires_grad"])
    session = ct.TrainSession(job["onnx"], config)
    with np.load(job["data"]) as data, np.load(job["out"]) as there:
        assert "error" not in there.files, str(there["error"])
        for step in range(STEPS):
            found = session.train_step(data[f"in0/{step}"], data[f"in1/{step}"]).loss
            assert found == pytest.approx(float(there["loss"][step]), abs=2e-6), f"step {step}"
        for name in job["requires_grad"]:
            np.testing.assert_allclose(
                session.parameters[name], there[f"wT/{name}"], rtol=0, atol=5e-6, err_msg=name
            )
