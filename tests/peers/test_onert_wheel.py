"""Against the real ONERT (`onert==0.1.0` in a Python of its own): what we write it reads, and the reverse.

ONERT_PYTHON names that Python; without it the tests are skipped. File names are short: the wheel
ignores paths of more than 15 characters.
"""

from __future__ import annotations

import os
import pickle
import struct
import subprocess
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onert_files import BY_NAME, FOLDER, RUNS, batches, config_of, session_of
from onert_graphs import random_batch, random_module

import circle_train as ct
from circle_train import format
from circle_train.checkpoints.onert_order import slot_readers
from circle_train.ir import Module

PYTHON = os.environ.get("ONERT_PYTHON", "")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not PYTHON, reason="ONERT_PYTHON does not name a Python with onert==0.1.0"),
]
PEER = Path(__file__).parent / "onert_peer.py"
GRAPHS = 200


def onert(folder: Path, jobs: Sequence[dict[str, Any]]) -> list[Any]:
    """The results of the jobs; an error is a string."""
    (folder / "jobs.pkl").write_bytes(pickle.dumps(list(jobs), protocol=4))
    done = subprocess.run(
        [PYTHON, str(PEER), str(folder)], capture_output=True, text=True, check=False, timeout=600
    )
    assert done.returncode == 0, done.stderr[-2000:]
    results: list[Any] = pickle.loads((folder / "results.pkl").read_bytes())
    assert len(results) == len(jobs)
    return results


def slots_in(raw: bytes) -> list[bytes]:
    """The constants of an SGD checkpoint, by its own offsets."""
    first, _, _, count = struct.unpack_from("<IIII", raw, 4)
    offsets = [*struct.unpack_from(f"<{count}I", raw, 20), first]
    return [raw[a:b] for a, b in pairwise(offsets)]


def test_slot_order_on_random_graphs(tmp_path: Path) -> None:
    """Slots hold what the emulator says, and just those of trained operators' own constants have changed."""
    jobs, cases = [], []
    for seed in range(GRAPHS):
        module = random_module(seed)
        (tmp_path / f"{seed}.circle").write_bytes(format.write(module, "CIR0"))
        operators = len(module.main.nodes)
        for last in sorted({0, operators, 1 + seed % operators}):
            count = -1 if last == operators else last
            job = {
                "model": f"{seed}.circle",
                "optimizer": "sgd",
                "learning_rate": 1.0,
                "trainable": count,
                "batch": 1,
            }
            jobs.append({**job, "data": [random_batch(module, seed)], "export": f"{seed}_{last}.ckpt"})
            cases.append((module, seed, last))
    results = onert(tmp_path, jobs)
    assert not [result for result in results if isinstance(result, str)]
    for module, seed, last in cases:
        check_slots(module, (tmp_path / f"{seed}_{last}.ckpt").read_bytes(), last)


def check_slots(module: Module, raw: bytes, last: int) -> None:
    expected = slot_readers(module.main)
    found = slots_in(raw)
    assert len(found) == len(expected)
    for (tensor, reader), data in zip(expected, found, strict=True):
        assert tensor.buffer is not None and len(data) == tensor.buffer.bytes.nbytes
        if reader < len(module.main.nodes) - last or not tensor.dtype.is_float:
            assert data == tensor.buffer.bytes.tobytes()


def plain_graphs() -> list[int]:
    """Seeds of random graphs that ONERT trains rightly.

    No shared constants, which it trains apart; and no operator that no weight comes before: where the result of
    such a one joins a trained branch, ONERT computes even the loss wrongly (ours is numpy's).
    """
    found = []
    for seed in range(1000, 1400):
        main = random_module(seed).main
        slots = [id(tensor) for tensor, _ in slot_readers(main)]
        influenced: set[int] = set()
        idle = 0
        for node in main.nodes:
            if any(
                t is not None and (id(t) in influenced or (t.is_constant and t.dtype.is_float))
                for t in node.inputs
            ):
                influenced.add(id(node.outputs[0]))
            else:
                idle += 1
        if len(slots) == len(set(slots)) and len(slots) > 2 and not idle:
            found.append(seed)
    return found[:24]


@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
def test_checkpoints_cross_on_random_graphs(optimizer: str, tmp_path: Path) -> None:
    """Three steps there and three here, and the reverse, give the losses of six in a row."""
    rates = {"sgd": 0.01, "adam": 0.01}
    makers = {"sgd": ct.optimizers.SGD, "adam": ct.optimizers.Adam}
    seeds = plain_graphs()
    assert len(seeds) >= 12
    jobs: list[dict[str, Any]] = []
    expected = []
    for seed in seeds:
        module = random_module(seed)
        config = ct.TrainConfig("mse", makers[optimizer](rates[optimizer]), 4)
        ct.Model(module).with_training(config).save(tmp_path / f"{seed}.circle")
        data = [random_batch(module, 10 * seed + step, 4) for step in range(6)]
        session = ct.TrainSession(str(tmp_path / f"{seed}.circle"))
        losses = [session.train_step(x, y).loss for x, y in data[:3]]
        session.save_checkpoint(tmp_path / f"o{seed}.ckpt")
        losses += [session.train_step(x, y).loss for x, y in data[3:]]
        expected.append(losses)
        job = {"model": f"{seed}.circle"}
        jobs.append({**job, "data": data[:3], "export": f"t{seed}.ckpt"})
        jobs.append({**job, "data": data[3:], "import": f"o{seed}.ckpt"})
    results = onert(tmp_path, jobs)
    for seed, losses, straight, continued in zip(seeds, expected, results[::2], results[1::2], strict=True):
        assert np.allclose(straight, losses[:3], rtol=1e-5), seed
        assert np.allclose(continued, losses[3:], rtol=2e-5), seed
        session = ct.TrainSession(str(tmp_path / f"{seed}.circle"))
        session.load_checkpoint(tmp_path / f"t{seed}.ckpt")
        module = random_module(seed)
        data = [random_batch(module, 10 * seed + step, 4) for step in range(3, 6)]
        assert np.allclose([session.train_step(x, y).loss for x, y in data], losses[3:], rtol=2e-5), seed


def test_our_circleplus_trains_alike(tmp_path: Path) -> None:
    """MSE and CCE, SGD and Adam, mean and sum, all and the last operators, on every golden model."""
    jobs, expected = [], []
    for number, (base, loss, reduction, optimizer, trainable) in enumerate(settings()):
        run = {
            **base,
            "loss": loss,
            "reduction": reduction,
            "optimizer": optimizer,
            "num_of_trainable_ops": trainable,
        }
        ct.load(FOLDER / run["model"]).with_training(config_of(run)).save(tmp_path / f"{number}.circle")
        data = batches(base)[:3]
        if loss == "cce":
            data = [(x, np.eye(y.shape[1], dtype=np.float32)[y.argmax(1)]) for x, y in data]
        session = ct.TrainSession(str(tmp_path / f"{number}.circle"))
        expected.append([session.train_step(x, y).loss for x, y in data])
        jobs.append({"model": f"{number}.circle", "data": data})
    for found, losses, job in zip(onert(tmp_path, jobs), expected, jobs, strict=True):
        assert np.allclose(found, losses, rtol=1e-5), (job["model"], found, losses)


def settings() -> list[tuple[dict[str, Any], str, str, str, int]]:
    bases = {run["model"]: run for run in RUNS}.values()
    return [
        (base, loss, reduction, optimizer, trainable)
        for base in bases
        for loss in (("mse", "cce") if base["model"] != "two_input.circle" else ("mse",))
        for reduction in ("mean", "sum")
        for optimizer in ("sgd", "adam")
        for trainable in ([-1, 1, 2] if base["model"] != "fc_linear.circle" else [-1, 1])
    ]


@pytest.mark.parametrize("run", RUNS, ids=lambda run: run["name"])
def test_our_exported_model_infers_alike(run: dict[str, Any], tmp_path: Path) -> None:
    session = session_of(run)
    for x, y in batches(run)[:3]:
        session.train_step(x, y)
    session.export(tmp_path / "m.circle")
    x = [array[:1] for array in batches(run)[3][0]]
    (found,) = onert(tmp_path, [{"model": "m.circle", "infer": True, "data": x}])
    assert np.allclose(found[0], session.predict(x), rtol=1e-5, atol=1e-6)


def test_all_golden_models_are_here() -> None:
    assert {run["model"] for run in RUNS} <= {path.name for path in FOLDER.glob("*.circle")}
    assert BY_NAME.keys() == {run["name"] for run in RUNS}
