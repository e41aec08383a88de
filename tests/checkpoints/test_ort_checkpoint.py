"""ONNX Runtime's own checkpoint files: read, gone on from, refused whole. Made by tools/dev/making/make_ort_golden.py."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import circle_train as ct
from circle_train.checkpoints.ort_file import IDENTIFIER, TABLES, read
from circle_train.format.flatbuffer.decode import decode
from circle_train.format.flatbuffer.encode import encode
from circle_train.ir import StateKey

pytest.importorskip("onnx")
DATA = Path(__file__).parents[1] / "data" / "ort"
LOSS = ct.losses.SparseCategoricalCrossentropy(from_logits=True)
ADAMW = ct.optimizers.AdamW(0.02, style="ort", epsilon=1e-6, weight_decay=0.0)
NAMES = ["fc1.weight", "fc1.bias", "fc2.weight", "fc2.bias"]
SAVED, STEPS = 3, 6


def session(optimizer: Any = ADAMW, model: Any = DATA / "mlp.onnx", **changes: Any) -> ct.TrainSession:
    settings = {"loss": LOSS, "optimizer": optimizer, "batch_size": 4, "frozen": ["fc1.weight"]} | changes
    return ct.TrainSession(model, ct.TrainConfig(**settings))


def go_on(made: ct.TrainSession, first: int, kind: str) -> None:
    """Every later loss, and the last weights."""
    with np.load(DATA / f"{kind}.npz") as run:
        for step in range(first, STEPS):
            loss = made.train_step(run[f"in0/{step}"], run[f"in1/{step}"]).loss
            assert loss == pytest.approx(float(run["loss"][step]), abs=2e-6), f"step {step}"
        for name in NAMES:
            np.testing.assert_allclose(
                made.parameters[name], run[f"wT/{name}"], rtol=0, atol=2e-6, err_msg=name
            )


@pytest.mark.parametrize("kind", ["adamw", "sgd"])
@pytest.mark.parametrize("first", [0, SAVED])
def test_training_goes_on_as_it_would_have_there(kind: str, first: int) -> None:
    """From the first step, and from ONNX Runtime's checkpoint after the third: values, moments, step."""
    made = session(ADAMW if kind == "adamw" else ct.optimizers.SGD(0.02))
    if first:
        made.load_checkpoint(DATA / f"checkpoint_{kind}")
        assert made.state.step == SAVED
    go_on(made, first, kind)


def test_a_package_goes_on_from_it(tmp_path: Path) -> None:
    config = ct.TrainConfig(LOSS, ADAMW, 4, frozen=["fc1.weight"])
    package = ct.make_artifacts(
        DATA / "mlp.onnx", tmp_path / "p", config, nominal=True, checkpoint=DATA / "checkpoint_adamw"
    )
    go_on(ct.TrainSession(package), SAVED, "adamw")


def test_properties_come_along() -> None:
    made = session()
    made.load_checkpoint(DATA / "checkpoint_adamw")
    assert dict(made.properties) == {"epoch": 4, "best": 0.25, "who": "server"}


def test_without_optimizer_state_the_weights_alone_are_taken() -> None:
    made = session()
    made.load_checkpoint(DATA / "checkpoint_weights")
    found = read((DATA / "checkpoint_weights").read_bytes(), None, "x")
    assert made.state.step == 0
    assert set(found.trained) == set(NAMES[1:]) and set(found.frozen) == {NAMES[0]}
    for name in NAMES:
        np.testing.assert_array_equal(made.parameters[name], found.parameters[name])


@pytest.mark.parametrize(
    ("name", "changes", "message"),
    [
        ("checkpoint_adamw", {"optimizer": "adam"}, "its optimizer is AdamW, this session trains with Adam;"),
        (
            "checkpoint_adamw",
            {"optimizer": "adamw"},
            "its optimizer is AdamW, this session trains with AdamW; AdamW",
        ),
        ("checkpoint_sgd", {}, "its optimizer is SGD, this session trains with one that has moments"),
        ("checkpoint_adamw", {"frozen": []}, "it has no moments of 'fc1.weight', which this session trains"),
        ("nominal_adamw", {}, "is nominal: it holds names and no values"),
        (
            "checkpoint_adamw",
            {"model": "tests/data/mlp.circle"},
            "'fc1.(weight|bias)', which is no parameter here",
        ),
    ],
)
def test_a_foreign_one_changes_nothing(name: str, changes: dict[str, Any], message: str) -> None:
    if "model" in changes:
        changes = {"model": Path(__file__).parents[2] / changes["model"], "frozen": []}
    made = session(**changes)
    before = {key: value.copy() for key, value in made.parameters.items()}
    with pytest.raises(ct.CheckpointError, match=message):
        made.load_checkpoint(DATA / name)
    assert made.state.step == 0
    for key, value in made.parameters.items():
        np.testing.assert_array_equal(value, before[key])


def rewritten(change: Any) -> bytes:
    root = decode((DATA / "checkpoint_adamw").read_bytes(), "Checkpoint", IDENTIFIER, TABLES)
    change(root)
    return encode("Checkpoint", root, IDENTIFIER, TABLES)


@pytest.mark.parametrize(
    "change, message",
    [
        (
            lambda root: root["module_state"]["requires_grad_params"].pop(),
            "it lacks 'fc2.weight', which this session",
        ),
        (lambda root: root["optimizer_groups"].append({}), "has 2 optimizer groups"),
        (lambda root: root["property_bag"]["ints"][0].pop("name"), "an entry of it has no name"),
        (
            lambda root: root["module_state"]["requires_grad_params"][0].update(data_type=6),
            r"is int32 .* expected \d+ floats",
        ),
    ],
)
def test_one_that_contradicts_itself_changes_nothing(tmp_path: Path, change: Any, message: str) -> None:
    (tmp_path / "checkpoint").write_bytes(rewritten(change))
    made = session()
    before = {key: value.copy() for key, value in made.parameters.items()}
    with pytest.raises(ct.CheckpointError, match=message):
        made.load_checkpoint(tmp_path / "checkpoint")
    assert all(np.array_equal(value, before[key]) for key, value in made.parameters.items())


def test_every_cut_and_any_changed_byte_gives_an_error_or_whole_arrays(tmp_path: Path) -> None:
    """The format has no checksum, so a changed number cannot be noticed; anything else must be."""
    whole = (DATA / "checkpoint_adamw").read_bytes()
    made = session()
    made.load_checkpoint(DATA / "checkpoint_adamw")
    rng = np.random.default_rng(0)
    refused = 0
    for trial in range(300):
        data = bytearray(whole)
        if trial % 2:
            del data[int(rng.integers(8, len(data) - 4)) :]
        else:
            data[int(rng.integers(8, len(data)))] ^= int(rng.integers(1, 256))
        path = tmp_path / "checkpoint"
        path.write_bytes(data)
        try:
            made.load_checkpoint(path)
        except ct.CheckpointError:
            refused += 1
    assert refused >= 150


def test_external_data_are_read_beside_the_file(tmp_path: Path) -> None:
    """Large files keep their arrays in `checkpoint.data`; without it, the message names it."""
    from circle_train.checkpoints import ort_file as ort_checkpoint

    tensor = {"name": "w", "dims": np.array([2], np.int64), "data_type": 1, "external_data_offset": 4}
    content = np.array([9, 1, 2], np.float32).tobytes()
    np.testing.assert_array_equal(ort_checkpoint._array(tensor, content, False, "here"), [1, 2])
    with pytest.raises(ct.CheckpointError, match=r"here\.data', which is missing"):
        ort_checkpoint._array(tensor, None, False, "here")


def test_a_missing_file_is_named() -> None:
    with pytest.raises(ct.CheckpointError, match="nowhere cannot be read"):
        session().load_checkpoint("nowhere")


def test_a_step_below_zero_changes_nothing(tmp_path: Path) -> None:
    """1 - beta^step beyond all numbers, in the middle of the next step."""
    root = decode((DATA / "checkpoint_adamw").read_bytes(), "Checkpoint", IDENTIFIER, TABLES)
    root["optimizer_groups"][0]["step"] = -(1 << 32)
    (tmp_path / "checkpoint").write_bytes(encode("Checkpoint", root, IDENTIFIER, TABLES))
    made = session()
    with pytest.raises(ct.CheckpointError, match="its step is -4294967296, expected a count"):
        made.load_checkpoint(tmp_path / "checkpoint")
    assert made.state.step == 0


def test_a_share_of_the_channels_takes_its_share_of_the_moments() -> None:
    whole, part = (
        session(trainable=["fc1.bias", name, "fc2.bias"]) for name in ("fc2.weight", "fc2.weight[:0.5]")
    )
    for made in (whole, part):
        made.load_checkpoint(DATA / "checkpoint_adamw")
    for kind in ("m", "v"):
        key = StateKey(kind, "fc2.weight")
        all_of_it, some = (made.state.arrays[key] for made in (whole, part))
        assert some.shape[1] == all_of_it.shape[1] // 2
        np.testing.assert_array_equal(some, all_of_it[:, : some.shape[1]])
    with np.load(DATA / "adamw.npz") as run:
        losses = [made.train_step(run["in0/3"], run["in1/3"]).loss for made in (whole, part)]
    assert losses[0] == losses[1]
