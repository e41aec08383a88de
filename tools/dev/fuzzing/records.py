"""Damaged records of Flower's: what a server is sent by clients."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import networks
import numpy as np

import circle_train as ct
from fuzzing.damage import Rng, damaged_bytes, pick


def has_flower() -> bool:
    try:
        import flwr  # noqa: F401
    except ImportError:
        return False
    return True


@cache
def records() -> list[dict[str, tuple[str, tuple[int, ...], str, bytes]]]:
    from circle_train import federated

    session = ct.TrainSession(networks.mlp(), ct.TrainConfig(loss="mse", batch_size=2), threads=1)
    record = federated.arrays(session)
    return [{name: (a.dtype, tuple(a.shape), a.stype, a.data) for name, a in record.items()}]


def damaged_record(arrays: Any, rng: Rng) -> dict[str, tuple[Any, ...]]:
    made = dict(arrays)
    name = pick(rng, sorted(made))
    dtype, shape, stype, data = made[name]
    kind = int(rng.integers(6))
    if kind == 0:
        dtype = pick(rng, ("float64", "int8", "object", "", "O", "<M8[s]", "f4,f4", "V0", "bogus", "float16"))
    elif kind == 1:
        shape = pick(rng, ((), (0,), (-1,), (2**62, 4), (*shape, 1), shape[::-1], (1,) * 70))
    elif kind == 2:
        stype = pick(rng, ("", "torch.Tensor", "\x1b[2J"))
    elif kind == 3:
        made["../../x"] = made.pop(name)
        return made
    else:
        data = damaged_bytes(data, rng) if rng.random() < 0.6 else _odd_header(data, rng)
    return {**made, name: (dtype, shape, stype, data)}


def _odd_header(data: bytes, rng: Rng) -> bytes:
    words: Sequence[bytes] = (
        b"(" * 200,
        b"'O'",
        b"-1",
        b"9" * 30,
        b"{" * 90,
        b"__import__('os')",
        b"'<f8'",
        b"\0",
    )
    word = pick(rng, words)
    place = int(rng.integers(10, 100))
    return data[:place] + word + data[place + len(word) :]


def run_record(arrays: dict[str, tuple[Any, ...]], rng: Rng, folder: Path) -> None:
    """Refused with nothing changed, or taken over."""
    from flwr.app import Array, ArrayRecord

    from circle_train import federated

    record = ArrayRecord()
    for name, fields in arrays.items():
        record[name] = Array(*fields)
    session = ct.TrainSession(networks.mlp(), ct.TrainConfig(loss="mse", batch_size=2), threads=1)
    before = {name: np.array(value) for name, value in session.parameters.items()}
    try:
        federated.load(session, record)
    except ct.CircleTrainError:
        for name, value in session.parameters.items():
            assert np.array_equal(before[name], value), f"a refused record changed '{name}'"
        raise
