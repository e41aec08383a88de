"""ONERT's checkpoints: byte for byte, and damage that changes nothing."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onert_files import BY_NAME, FOLDER, RUNS, batches, everything, session_of, trained
from onert_graphs import random_module

import circle_train as ct
from circle_train import format
from circle_train.checkpoints.onert_file import OnertCheckpoint, decode, encode
from circle_train.checkpoints.onert_order import HashOrder, slot_readers
from circle_train.ir import DType, Graph, Tensor, TensorType
from circle_train.ir.graph import constant
from circle_train.ops import REGISTRY

every_run = pytest.mark.parametrize("run", RUNS, ids=lambda run: run["name"])


@every_run
def test_slot_order_is_onerts(run: dict[str, Any]) -> None:
    graph = ct.load(FOLDER / run["model"]).module.main
    assert [graph.tensors.index(tensor) for tensor, _ in slot_readers(graph)] == run["slots"]


SHARED = json.loads((FOLDER / "shared_constants.json").read_text())


@pytest.mark.parametrize("case", SHARED, ids=lambda case: f"{case['operators']}-{len(case['shared'])}")
def test_shared_constants_go_to_onerts_readers(case: dict[str, Any]) -> None:
    """A chain of layers; the tensor table is input, shared weights, then each layer's own weights and its output."""
    square = np.eye(3, dtype=np.float32)
    x = Tensor("x", TensorType(DType.FLOAT32, (1, 3)))
    graph = Graph("main", [x], tensors=[x, constant(square, "shared")])
    for index in range(case["operators"]):
        weights = graph.tensors[1]
        if index not in case["shared"]:
            weights = constant(square, f"w{index}")
            graph.tensors.append(weights)
        x = graph.emit(REGISTRY["FULLY_CONNECTED"](), x, weights, None)
        graph.nodes[-1].index = index
        graph.tensors.append(x)
    graph.outputs = [x]
    assert [reader for _, reader in slot_readers(graph)] == case["readers"]


@pytest.mark.parametrize("seed", range(8))
def test_slot_order_is_that_of_the_file_for_models_made_in_memory(seed: int) -> None:
    """Without a tensor table of its own, a model takes the one it will be written with."""
    made = random_module(seed)
    made.main.tensors = []
    written = format.read(format.write(made, "CIR0"))
    assert [t.name for t, _ in slot_readers(made.main)] == [t.name for t, _ in slot_readers(written.main)]


def test_hash_order_is_libstdcxx() -> None:
    """As g++ 12 iterates unordered_map<unsigned, int> after inserting 0 … 19 and 7·13, and erasing 4."""
    order = HashOrder([*range(20), 91])
    order.erase(4)
    assert list(order) == [19, 18, 17, 16, 15, 14, 13, 0, 1, 2, 3, 91, 5, 6, 7, 8, 9, 10, 11, 12]


@every_run
def test_what_onert_wrote_is_read_and_written_byte_for_byte(run: dict[str, Any]) -> None:
    raw = (FOLDER / run["checkpoint"]).read_bytes()
    sizes = [tensor.type.nbytes for tensor, _ in slot_readers(ct.load(FOLDER / run["model"]).module.main)]
    assert encode(decode(raw, sizes, run["checkpoint"])) == raw


@every_run
def test_loading_goes_on_where_onert_stopped(run: dict[str, Any], tmp_path: Path) -> None:
    session = session_of(run)
    session.load_checkpoint(FOLDER / run["checkpoint"])
    assert session.state.step == run["steps"]
    session.save_checkpoint(tmp_path / "again.ckpt")
    assert (tmp_path / "again.ckpt").read_bytes() == (FOLDER / run["checkpoint"]).read_bytes()


@every_run
def test_training_here_ends_in_onerts_checkpoint(run: dict[str, Any], tmp_path: Path) -> None:
    """Same structure; float32 results within the tolerance of two implementations."""
    session = trained(run, run["steps"])
    session.save_checkpoint(tmp_path / "ours.ckpt")
    theirs, ours = (FOLDER / run["checkpoint"]).read_bytes(), (tmp_path / "ours.ckpt").read_bytes()
    count = len(run["slots"])
    assert (
        len(ours) == len(theirs)
        and ours[: 20 + 4 * count] == theirs[: 20 + 4 * count]
        and ours[-8:] == theirs[-8:]
    )
    sizes = [tensor.type.nbytes for tensor, _ in slot_readers(session.model.module.main)]
    mine, other = (decode(data, sizes, "") for data in (ours, theirs))
    for a, b in zip(mine.values, other.values, strict=True):
        assert np.allclose(a.view(np.float32), b.view(np.float32), atol=5e-6) or a.tobytes() == b.tobytes()


def test_the_worked_example_of_the_format() -> None:
    """W=1.9, b=0.4, their moments, one step: 76 bytes."""
    values, m, v = (
        tuple(np.array([bits], np.uint32).view(np.uint8) for bits in pair)
        for pair in ((0x3FF33333, 0x3ECCCCCE), (0x40533336, 0x3F8CCCCF), (0x3F8B63E4, 0x3DF7CE08))
    )
    raw = encode(OnertCheckpoint(values, (m, v), 1))
    assert raw.hex(" ", 4) == (
        "ad010100 24000000 34000000 44000000 02000000 1c000000 20000000 3333f33f cecccc3e 2c000000 30000000 "
        "36335340 cfcc8c3f 3c000000 40000000 e4638b3f 08cef73d 01000000 00000000"
    )


def test_sgd_keeps_its_step(tmp_path: Path) -> None:
    """ONERT loses it in models of more than two constants."""
    run = BY_NAME["residual__mse_mean_sgd"]
    trained(run, 3).save_checkpoint(tmp_path / "a.ckpt")
    session = session_of(run)
    session.load_checkpoint(tmp_path / "a.ckpt")
    for x, y in batches(run)[3:6]:
        session.train_step(x, y)
    session.save_checkpoint(tmp_path / "b.ckpt")
    assert struct.unpack("<II", (tmp_path / "b.ckpt").read_bytes()[-8:]) == (6, 0)


GOOD = BY_NAME["mlp_softmax__cce_mean_adam"]


def put(form: str, offset: int, *values: int) -> Callable[[bytes], bytes]:
    """Overwrite some bytes."""

    def damage(raw: bytes) -> bytes:
        changed = bytearray(raw)
        struct.pack_into(form, changed, offset, *values)
        return bytes(changed)

    return damage


DAMAGE: dict[str, Callable[[bytes], bytes]] = {
    "truncated by one": lambda raw: raw[:-1],
    "half": lambda raw: raw[: len(raw) // 2],
    "header only": lambda raw: raw[:20],
    "ten bytes": lambda raw: raw[:10],
    "empty": lambda raw: b"",
    "trailing": lambda raw: raw + b"\0\0",
    "magic": put("<H", 0, 430),
    "version": put("<B", 2, 2),
    "no slots": put("<I", 16, 0),
    "one slot less": put("<I", 16, 3),
    "all slots": put("<I", 16, 0xFFFFFFFF),
    "first offset past the end": put("<I", 20, 0x7FFFFFFF),
    "first offset zero": put("<I", 20, 0),
    "offsets swapped": put("<II", 20, 100, 36),
    "moments past the end": put("<I", 4, 0x7FFFFFFF),
    "second before first moments": put("<II", 4, 860, 448),
    "footer past the end": put("<I", 12, 0x7FFFFFFF),
    "step without successor": lambda raw: raw[:-8] + b"\xff" * 4 + raw[-4:],
}


@pytest.mark.parametrize("name", DAMAGE)
def test_damaged_checkpoints_change_nothing(name: str, tmp_path: Path) -> None:
    path = tmp_path / "damaged.ckpt"
    path.write_bytes(DAMAGE[name]((FOLDER / GOOD["checkpoint"]).read_bytes()))
    session = trained(GOOD, 2)
    before = everything(session)
    with pytest.raises(ct.CheckpointError, match=r"damaged\.ckpt") as caught:
        session.load_checkpoint(path)
    assert "\n" not in str(caught.value)
    assert everything(session) == before


def test_moments_must_start_where_their_offsets_end() -> None:
    """Gaps would let every slot but an empty last one have its size."""
    values = tuple(np.zeros(size, np.uint8) for size in (8, 4))
    raw = bytearray(encode(OnertCheckpoint(values, (values, values), 1)))
    first, second = struct.unpack_from("<II", raw, 4)
    for start in (first, second):
        struct.pack_into("<II", raw, start, start + 8 + 4, start + 8 + 4 + 8)
    with pytest.raises(ct.CheckpointError, match="first moments: slot 0 is said to start at"):
        decode(bytes(raw), [8, 4], "x")


def test_both_moments_or_none() -> None:
    values = tuple(np.zeros(size, np.uint8) for size in (8, 4))
    half = (values[0], values[1][:0])
    with pytest.raises(ct.CheckpointError, match="slot 1 has 4 bytes of first and 0 of second moments"):
        decode(encode(OnertCheckpoint(values, (values, half), 1)), [8, 4], "x")


def test_the_reserved_byte_is_not_looked_at(tmp_path: Path) -> None:
    (tmp_path / "reserved.ckpt").write_bytes(put("<B", 3, 9)((FOLDER / GOOD["checkpoint"]).read_bytes()))
    session = session_of(GOOD)
    session.load_checkpoint(tmp_path / "reserved.ckpt")
    assert session.state.step == 6


@pytest.mark.parametrize(
    ("checkpoint", "run", "message"),
    [
        (
            "mlp_softmax__cce_mean_sgd_n2",
            "mlp_softmax__cce_mean_adam",
            "written by SGD, this session trains with Adam",
        ),
        (
            "mlp_softmax__cce_mean_adam",
            "mlp_softmax__cce_mean_sgd_n2",
            "written by Adam, this session trains with SGD",
        ),
        ("two_input__mse_mean_adam", "mlp_softmax__cce_mean_adam", "holds 6 constants, this model has 4"),
        ("cnn_softmax__cce_mean_adam_n4", "cnn_softmax__cce_mean_adam", "has no moments of"),
    ],
)
def test_checkpoints_of_another_session_change_nothing(checkpoint: str, run: str, message: str) -> None:
    session = trained(BY_NAME[run], 2)
    before = everything(session)
    with pytest.raises(ct.CheckpointError, match=message):
        session.load_checkpoint(FOLDER / BY_NAME[checkpoint]["checkpoint"])
    assert everything(session) == before


def test_a_model_of_the_same_sizes_but_other_constants_is_refused(tmp_path: Path) -> None:
    """The INT32 constants in the file are the only sign of identity that it has."""
    run = BY_NAME["residual__mse_mean_sgd"]
    raw = bytearray((FOLDER / run["checkpoint"]).read_bytes())
    graph = ct.load(FOLDER / run["model"]).module.main
    slot = next(index for index, (tensor, _) in enumerate(slot_readers(graph)) if not tensor.dtype.is_float)
    raw[struct.unpack_from("<I", raw, 20 + 4 * slot)[0]] ^= 1
    (tmp_path / "other.ckpt").write_bytes(raw)
    session = trained(run, 1)
    before = everything(session)
    with pytest.raises(ct.CheckpointError, match="belongs to another model: its constant"):
        session.load_checkpoint(tmp_path / "other.ckpt")
    assert everything(session) == before


def test_a_weight_that_onert_trained_apart_is_refused() -> None:
    config = ct.TrainConfig(ct.losses.MeanSquaredError(), ct.optimizers.SGD(0.05), 4)
    session = ct.TrainSession(str(FOLDER / "quirks" / "shared_weight_tensor.circle"), config)
    before = everything(session)
    with pytest.raises(ct.CheckpointError, match=r"different copies of .* which several operators share"):
        session.load_checkpoint(FOLDER / "quirks" / "shared_weight_tensor.ckpt")
    assert everything(session) == before


def test_fresh_biases_that_share_a_buffer_are_apart_as_onert_trains_them(tmp_path: Path) -> None:
    config = ct.TrainConfig(ct.losses.MeanSquaredError(), ct.optimizers.SGD(0.05), 4)
    session = ct.TrainSession(str(FOLDER / "quirks" / "shared_buffer_biases.circle"), config)
    session.load_checkpoint(FOLDER / "quirks" / "shared_buffer_biases.ckpt")
    session.save_checkpoint(tmp_path / "again.ckpt")
    assert (tmp_path / "again.ckpt").read_bytes() == (
        FOLDER / "quirks/shared_buffer_biases.ckpt"
    ).read_bytes()


@pytest.mark.parametrize("quirk", ["shared_weight_tensor", "shared_buffer_biases"])
def test_shared_constants_cross_our_own_files(quirk: str, tmp_path: Path) -> None:
    config = ct.TrainConfig(ct.losses.MeanSquaredError(), ct.optimizers.SGD(0.05), 4)
    path = str(FOLDER / "quirks" / f"{quirk}.circle")
    session = ct.TrainSession(path, config)
    x = np.random.default_rng(0).standard_normal((4, *session.model.inputs[0].shape[1:]))
    y = np.zeros((4, *session.model.outputs[0].shape[1:]))
    session.train_step(x, y)
    for name in ("a.ckpt", "a.safetensors"):
        session.save_checkpoint(tmp_path / name)
        other = ct.TrainSession(path, config)
        other.load_checkpoint(tmp_path / name)
        assert everything(other) == everything(session)


@pytest.mark.parametrize(
    "optimizer",
    [ct.optimizers.SGD(0.1, momentum=0.9), ct.optimizers.RMSprop(0.1)],
    ids=["momentum", "rmsprop"],
)
def test_onerts_format_has_no_place_for_other_optimizers(optimizer: Any, tmp_path: Path) -> None:
    session = trained(GOOD, 1, optimizer=optimizer)
    with pytest.raises(ct.CheckpointError, match=r"no place for the state of .*use a \.safetensors file"):
        session.save_checkpoint(tmp_path / "a.ckpt")
    assert not list(tmp_path.iterdir())
