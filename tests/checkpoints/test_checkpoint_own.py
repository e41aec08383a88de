"""Our own checkpoint: nothing is lost, resuming is exact, damage and full disks change nothing."""

from __future__ import annotations

import json
import re
import struct
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onert_files import BY_NAME, FOLDER, batches, everything, session_of, trained

import circle_train as ct
from circle_train.checkpoints import safetensors
from circle_train.ir.tensor_type import Array

GOOD = BY_NAME["mlp_softmax__cce_mean_adam"]
OPTIMIZERS = {
    "sgd": ct.optimizers.SGD(0.05),
    "momentum": ct.optimizers.SGD(0.05, momentum=0.9),
    "adam": ct.optimizers.Adam(0.01),
    "adamw": ct.optimizers.AdamW(0.01),
    "schedule": ct.optimizers.Adam(ct.schedules.Cosine(0.01, total_steps=20)),
}


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_resuming_is_as_if_never_stopped(name: str, tmp_path: Path) -> None:
    run = BY_NAME["residual__mse_mean_adam"]
    straight = trained(run, 6, optimizer=OPTIMIZERS[name])
    trained(run, 3, optimizer=OPTIMIZERS[name]).save_checkpoint(tmp_path / "a.safetensors")
    resumed = session_of(run, optimizer=OPTIMIZERS[name])
    resumed.load_checkpoint(tmp_path / "a.safetensors")
    for x, y in batches(run)[3:6]:
        resumed.train_step(x, y)
    assert everything(resumed) == everything(straight)
    for session, file in ((straight, "straight.circle"), (resumed, "resumed.circle")):
        session.export(tmp_path / file)
    assert (tmp_path / "straight.circle").read_bytes() == (tmp_path / "resumed.circle").read_bytes()


def test_the_format_page_names_what_is_written(tmp_path: Path) -> None:
    """All of it, in the middle of a fit: entries, the parts of those that are JSON, and kinds of arrays."""
    path = tmp_path / "a.safetensors"
    session = session_of(GOOD)
    session.properties["round"] = 4
    x, y = batches(GOOD)[0]
    session.train_step(x, y, update=False, accumulate=True)
    save = ct.callbacks.LambdaCallback(on_epoch_end=lambda epoch, logs: session.save_checkpoint(path))
    session.fit(
        x, y, epochs=1, callbacks=[ct.callbacks.EarlyStopping("loss", restore_best=True), save], verbose=0
    )
    arrays, metadata = safetensors.decode(path.read_bytes(), "a")
    page = (Path(__file__).parents[2] / "docs/format.md").read_text(encoding="utf-8")
    page = page.partition("## `.safetensors`")[2].partition("\n## ")[0]
    table = set(re.findall(r"^\| `(\w+)` \|", page, re.MULTILINE))
    slots = set(session.config.rule.slots)
    assert {name.partition("/")[0] for name in arrays} - slots == {"value", "gradient", "callback"} <= table
    assert {*metadata, "checksum"} == table - {"value", "gradient", "callback"}
    for part in ("progress", "fit"):
        assert all(f"`{name}`" in page for name in json.loads(metadata[part])), part


def test_everything_around_the_weights_is_kept(tmp_path: Path) -> None:
    session = trained(GOOD, 2)
    session.learning_rate = 0.0123
    session.seed = 77
    session.state.epoch, session.state.position, session.state.epochs_begun, session.state.passes = (
        3,
        5,
        9,
        11,
    )
    session.properties["round"] = 4
    session.save_checkpoint(tmp_path / "a.safetensors")
    other = session_of(GOOD)
    other.load_checkpoint(tmp_path / "a.safetensors")
    state = other.state
    assert (state.step, state.epoch, state.position, state.epochs_begun, state.passes) == (2, 3, 5, 9, 11)
    assert (other.learning_rate, other.seed, dict(other.properties)) == (0.0123, 77, {"round": 4})
    kept = {"step", "epoch", "position", "epochs_begun", "passes", "properties", "learning_rate", "arrays"}
    kept.add("rounding")  # tests/quantize/test_aware.py
    ours = {
        "parameters",
        "generation",
        "unset",
        "course",
        "runs_far",  # of the last loss alone: the next step says it anew
        "coded",  # frozen weights as the file has them: one that was set is among the arrays
        "unread",  # outputs of the last step that somebody may still ask for
    }  # the course of a fit: tests/checkpoints/test_resume.py
    assert set(vars(state)) == kept | ours, "what is new in State belongs into the checkpoint, too"


def test_accumulated_gradients_are_kept(tmp_path: Path) -> None:
    session = session_of(GOOD)
    (x, y), (x2, y2) = batches(GOOD)[:2]
    session.train_step(x, y, update=False, accumulate=True)
    session.save_checkpoint(tmp_path / "a.safetensors")
    other = session_of(GOOD)
    other.load_checkpoint(tmp_path / "a.safetensors")
    for each in (session, other):
        each.train_step(x2, y2, accumulate=True)
    assert everything(other) == everything(session)


def test_a_frozen_weight_that_was_set_is_kept_and_one_that_was_not_is_restored(tmp_path: Path) -> None:
    run = BY_NAME["mlp_softmax__cce_mean_sgd_n2"]
    frozen = next(name for name, p in session_of(run).state.parameters.items() if not p.trained)
    plain, changed = trained(run, 1), trained(run, 1)
    changed.parameters[frozen] = changed.parameters[frozen] + 1
    plain.save_checkpoint(tmp_path / "plain.safetensors")
    changed.save_checkpoint(tmp_path / "changed.safetensors")
    session = session_of(run)
    for name, expected in (("changed", changed), ("plain", plain), ("changed", changed)):
        session.load_checkpoint(tmp_path / f"{name}.safetensors")
        assert np.array_equal(
            session.parameters.flat(trainable_only=False), expected.parameters.flat(trainable_only=False)
        )
        x, y = batches(run)[1]
        assert session.eval_step(x, y).loss == expected.eval_step(x, y).loss


def test_any_changed_byte_is_noticed(tmp_path: Path) -> None:
    session = trained(BY_NAME["fc_linear__mse_mean_adam"], 2)
    path = tmp_path / "a.safetensors"
    session.save_checkpoint(path)
    raw = path.read_bytes()
    before = everything(session)
    for position in range(len(raw)):
        path.write_bytes(raw[:position] + bytes([raw[position] ^ 4]) + raw[position + 1 :])
        try:
            session.load_checkpoint(path)
        except ct.CheckpointError:
            assert everything(session) == before
        else:
            pytest.fail(f"a change at byte {position} ({raw[position : position + 1]!r}) was not noticed")


def test_cut_files_are_refused(tmp_path: Path) -> None:
    session = trained(BY_NAME["fc_linear__mse_mean_adam"], 1)
    path = tmp_path / "a.safetensors"
    session.save_checkpoint(path)
    raw = path.read_bytes()
    for size in range(0, len(raw), 7):
        path.write_bytes(raw[:size])
        with pytest.raises(ct.CheckpointError):
            session.load_checkpoint(path)


def test_other_programs_read_our_file(tmp_path: Path) -> None:
    """Header length, JSON with dtype, shape and data_offsets: nothing more is needed."""
    session = trained(GOOD, 1)
    session.save_checkpoint(tmp_path / "a.safetensors")
    arrays, metadata = safetensors.decode((tmp_path / "a.safetensors").read_bytes(), "a")
    for name, value in session.parameters.items():
        assert np.array_equal(arrays[f"value/{name}"], value)
    assert set(metadata) == {"format", "model", "progress", "config"}
    length = struct.unpack("<Q", (tmp_path / "a.safetensors").read_bytes()[:8])[0]
    assert length % 8 == 0


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"optimizer": ct.optimizers.SGD(0.1)}, "written by Adam, this session trains with SGD"),
        ({"optimizer": ct.optimizers.AdamW(0.1)}, "written by Adam, this session trains with AdamW"),
    ],
)
def test_another_optimizer_is_refused(changes: dict[str, Any], message: str, tmp_path: Path) -> None:
    trained(GOOD, 1).save_checkpoint(tmp_path / "a.safetensors")
    session = trained(GOOD, 1, **changes)
    before = everything(session)
    with pytest.raises(ct.CheckpointError, match=message):
        session.load_checkpoint(tmp_path / "a.safetensors")
    assert everything(session) == before


def test_another_model_is_refused(tmp_path: Path) -> None:
    trained(GOOD, 1).save_checkpoint(tmp_path / "a.safetensors")
    with pytest.raises(ct.CheckpointError, match="does not belong to this session"):
        session_of(BY_NAME["two_input__mse_mean_adam"]).load_checkpoint(tmp_path / "a.safetensors")
    last = session_of(GOOD, trainable=("last", 2))
    trained(GOOD, 1, trainable=("last", 2)).save_checkpoint(tmp_path / "last.safetensors")
    with pytest.raises(ct.CheckpointError, match="lacks the value of"):
        session_of(GOOD).load_checkpoint(tmp_path / "last.safetensors")
    last.load_checkpoint(tmp_path / "last.safetensors")


def test_the_same_model_with_other_frozen_constants_is_refused(tmp_path: Path) -> None:
    run = BY_NAME["mlp_softmax__cce_mean_sgd_n2"]
    session = trained(run, 1)
    session.save_checkpoint(tmp_path / "a.safetensors")
    frozen = next(name for name, parameter in session.state.parameters.items() if not parameter.trained)
    session.parameters[frozen] = session.parameters[frozen] * 2
    session.export(tmp_path / "other.circle")
    other = ct.TrainSession(tmp_path / "other.circle", session.config)
    before = everything(other)
    with pytest.raises(ct.CheckpointError, match="other operators, tensors or frozen constants"):
        other.load_checkpoint(tmp_path / "a.safetensors")
    assert everything(other) == before


@pytest.mark.parametrize("suffix", ["ckpt", "safetensors"])
def test_loading_forgets_what_was_accumulated(suffix: str, tmp_path: Path) -> None:
    session = trained(GOOD, 1)
    session.save_checkpoint(tmp_path / f"a.{suffix}")
    x, y = batches(GOOD)[1]
    session.train_step(x, y, update=False, accumulate=True)
    session.load_checkpoint(tmp_path / f"a.{suffix}")
    sums = [array for key, array in session.state.arrays.items() if key.kind == "gradient"]
    assert sums and not any(array.any() for array in sums)


def test_unknown_suffixes_and_missing_files() -> None:
    session = session_of(GOOD)
    with pytest.raises(ct.CheckpointError, match=r"suffix is '\.bin', expected"):
        session.save_checkpoint("a.bin")
    with pytest.raises(ct.CheckpointError, match="cannot be read"):
        session.load_checkpoint("missing.safetensors")


# Atomicity

FULL_DISK = """
import resource, sys
import numpy as np
import circle_train as ct
session = ct.TrainSession(sys.argv[1], ct.TrainConfig("mse", "adam", 4))
session.prepare()
resource.setrlimit(resource.RLIMIT_FSIZE, (400, 400))
try:
    session.save_checkpoint(sys.argv[2])
except ct.CircleTrainError as error:
    print(error)
    sys.exit(3)
"""


@pytest.mark.parametrize("suffix", ["ckpt", "safetensors"])
def test_a_full_disk_keeps_the_previous_checkpoint(suffix: str, tmp_path: Path) -> None:
    path = tmp_path / f"a.{suffix}"
    path.write_bytes(b"the previous one")
    command = [sys.executable, "-c", FULL_DISK, str(FOLDER / "mlp_softmax.circle"), str(path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=Path(__file__).parent)
    assert done.returncode == 3, done.stderr
    assert "cannot be written" in done.stdout
    assert path.read_bytes() == b"the previous one"
    assert [entry.name for entry in tmp_path.iterdir()] == [path.name]


def test_equal_states_make_equal_files(tmp_path: Path) -> None:
    first, second = (trained(GOOD, 3) for _ in range(2))
    files = [tmp_path / name for name in ("a.safetensors", "b.safetensors", "a.ckpt", "b.ckpt")]
    for session, path in zip((first, second, first, second), files, strict=True):
        session.save_checkpoint(path)
    contents: list[bytes] = [path.read_bytes() for path in files]
    assert contents[0] == contents[1] and contents[2] == contents[3]


def test_empty_and_scalar_arrays_survive_safetensors() -> None:
    arrays: dict[str, Array] = {
        "scalar": np.float32(3).reshape(()),
        "empty": np.zeros((0, 2)),
        "flag": np.array([True]),
    }
    back, metadata = safetensors.decode(safetensors.encode(arrays, {"a": "ü"}), "x")
    assert metadata == {"a": "ü"}
    assert all(
        np.array_equal(back[k], v) and back[k].dtype == v.dtype and back[k].shape == v.shape
        for k, v in arrays.items()
    )
