"""Files of integers as Google's AI Edge Quantizer reads them, and LiteRT by their signatures.

AEQ_PYTHON names a Python with ai-edge-quantizer 0.10; without it the tests are skipped.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import circle_train as ct
from circle_train.ir import Tensor

PYTHON = os.environ.get("AEQ_PYTHON", "")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not PYTHON, reason="AEQ_PYTHON does not name a Python with ai-edge-quantizer"),
]
SHARED = Path(__file__).resolve().parents[3] / "shared" / "data"
READER = """
import json, sys
from ai_edge_litert.interpreter import Interpreter
from ai_edge_quantizer.utils import tfl_flatbuffer_utils as reader
model = reader.read_model(sys.argv[1])
graph = model.subgraphs[0]
text = lambda name: name if isinstance(name, str) else name.decode()
def meant(t):
    q = t.quantization
    if q is None or q.scale is None:
        return None
    return [[float(s) for s in q.scale], [int(z) for z in q.zeroPoint], q.quantizedDimension]
known = Interpreter(sys.argv[1])
known.allocate_tensors()
print(json.dumps({
    "tensors": [[text(t.name), meant(t)] for t in graph.tensors],
    "operators": len(graph.operators),
    "is float": reader.is_float_model(model),
    "metadata": [[text(m.name), len(model.buffers[m.buffer].data)] for m in model.metadata or []],
    "signatures": known.get_signature_list(),
}))
"""


def read_by_others(path: Path) -> dict[str, Any]:
    done = subprocess.run([PYTHON, "-c", READER, str(path)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-800:]
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def trained(source: Path, out: Path, **how: Any) -> ct.TrainSession:
    """After a step on pictures of nothing."""
    session = ct.TrainSession(source, ct.TrainConfig(loss="sparse_categorical_crossentropy", batch_size=2))
    given = session.model.inputs[0]
    rng = np.random.default_rng(0)
    x = rng.integers(-128, 128, (2, *given.shape[1:])).astype(given.dtype)
    session.train_step(x, np.zeros(2, np.int32))
    session.export(out, **how)
    return session


def shipped(source: Path, out: Path, scheme: str) -> None:
    session = ct.TrainSession(source, ct.TrainConfig(loss="mse", trainable="none", batch_size=1))
    given = session.model.inputs[0]
    x = np.random.default_rng(0).uniform(-1, 1, (8, *given.shape[1:])).astype(np.float32)
    session.export(out, quantize=ct.Int8(calibration=x, scheme=scheme))


FILES: dict[str, tuple[Path, Callable[[Path, Path], Any]]] = {
    "trained": (Path("tests/data/int8_cnn.tflite"), trained),
    "rescaled": (Path("tests/data/int8_cnn.tflite"), lambda source, out: trained(source, out, rescale=True)),
    "resnet8": (SHARED / "models/mlperf_tiny_resnet8_int8.tflite", trained),
    "shipped": (SHARED / "models/hey_mycroft_ln_mlp_f32.tflite", lambda s, o: shipped(s, o, "int8")),
    "dynamic": (SHARED / "models/hey_mycroft_ln_mlp_f32.tflite", lambda s, o: shipped(s, o, "dynamic")),
    "int16x8": (SHARED / "models/hey_mycroft_ln_mlp_f32.tflite", lambda s, o: shipped(s, o, "int16x8")),
}


@pytest.mark.parametrize("case", FILES)
def test_it_reads_what_we_wrote(case: str, tmp_path: Path) -> None:
    """The same tensors and scales, and the signatures and metadata of the file that was loaded."""
    source, write = FILES[case]
    if not source.exists():
        pytest.skip(f"{source} is not here")
    out = tmp_path / "out.tflite"
    write(source, out)
    before, after = read_by_others(source), read_by_others(out)
    ours = ct.load(out).module.main
    assert after["operators"] == len(ours.nodes) and not after["is float"]
    wanted = {tensor.name: meaning(tensor) for tensor in ours.all_tensors()}
    assert {name: kept for name, kept in after["tensors"] if kept is not None} == {
        name: kept for name, kept in wanted.items() if kept is not None
    }
    assert after["signatures"] == before["signatures"]
    assert [name for name, _ in after["metadata"]] == [name for name, _ in before["metadata"]]


def meaning(tensor: Tensor) -> list[Any] | None:
    stored = tensor.quantization
    if stored is None or not stored.scale:
        return None
    zeros = list(stored.zero_point) or [0] * len(stored.scale)
    return [[float(np.float32(scale)) for scale in stored.scale], zeros, stored.axis]
