"""Models whose numbers lie, trained: our own error or a step, on the native engine, whose memory no file may break."""

from __future__ import annotations

import collections
from pathlib import Path

import numpy as np
import pytest

import circle_train as ct
from circle_train.backends import native

FILES = sorted((Path(__file__).parents[1] / "data").rglob("*.circle"))
STRANGE = (0, 1, -1, 2, 3, 7, 1 << 20, (1 << 31) - 1)
needs_native = pytest.mark.skipif(not native.is_available(), reason="the native engine was not built")


def lying(raw: bytes, rng: np.random.Generator) -> bytes:
    """Another number or two in place of small ones: sizes, codes, indices, options."""
    words = np.frombuffer(raw, "<i4", len(raw) // 4).copy()
    small = np.flatnonzero((words >= -1) & (words <= 3000))
    for place in rng.choice(small, size=int(rng.integers(1, 3))):
        near = (int(words[place]) + 1, int(words[place]) - 1, 2 * int(words[place]))
        words[place] = rng.choice([*STRANGE, *near])
    return words.tobytes() + raw[4 * words.size :]


def trained(raw: bytes) -> str:
    """What comes of a step: "a step", or the class of our error."""
    try:
        session = ct.TrainSession(raw, ct.TrainConfig(loss="mse", batch_size=2), backend="native", threads=2)
        program = session.program
        x = [np.ones((2, *t.type.shape[1:]), t.type.dtype.numpy) for t in session.model.module.main.inputs]
        y = [np.ones((2, *t.type.shape[1:]), t.type.dtype.numpy) for t in program.outputs]
        session.train_step(x if len(x) > 1 else x[0], y if len(y) > 1 else y[0])
    except ct.CircleTrainError as error:
        return type(error).__name__
    return "a step"


@needs_native
@pytest.mark.parametrize("seed", range(4))
def test_lying_models_are_refused_or_trained(seed: int) -> None:
    rng = np.random.default_rng(seed)
    files = [path.read_bytes() for path in FILES]
    came = collections.Counter(trained(lying(files[i % len(files)], rng)) for i in range(150))
    assert came["a step"] > 5 and came["ModelError"] > 50
