"""What the fuzzer feeds to circle_train, and how far each case goes: a target is a kind of file.

A case is a target and a number: the number decides the seed, the damage and whatever else is random, so that it says
everything. Seeds are one model for each example of each operator, the tests' small models and files, and what earlier
runs have found (tests/data/fuzz).
"""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import struct
import sys
import zipfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from fuzzing.damage import Rng, damaged_bytes, damaged_json, damaged_message, damaged_tables, pick

ROOT = Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT / "tests" / "nets"))
sys.path.append(str(ROOT))  # behind the installed package, which has the engine that a clone has not

import format_models  # noqa: E402
import networks  # noqa: E402
import random_onnx  # noqa: E402
from fuzzing import samples  # noqa: E402

import circle_train as ct  # noqa: E402
from circle_train import format  # noqa: E402
from circle_train.checkpoints import by_suffix, safetensors  # noqa: E402
from circle_train.format.flatbuffer.decode import decode  # noqa: E402
from circle_train.format.flatbuffer.encode import encode  # noqa: E402
from circle_train.format.model.reader import SCHEMAS  # noqa: E402
from circle_train.ir import DType, Graph, Module, Tensor, TensorType  # noqa: E402
from circle_train.ir.graph import constant  # noqa: E402
from circle_train.ops import REGISTRY  # noqa: E402
from circle_train.session.foresight import choices, operator_checks  # noqa: E402
from circle_train.settings.as_json import to_dict  # noqa: E402
from circle_train.settings.onert_json import to_onert_json  # noqa: E402

DATA = ROOT / "tests" / "data"
KEPT = DATA / "fuzz"
LARGE_WORK, LARGE_BYTES = 5e8, 64 << 20
"""Operations and bytes of a step beyond which a case is planned, but not run: it would be no hang, only large."""
TRAINED = ct.TrainConfig(loss="mse", optimizer=ct.optimizers.SGD(0.01, momentum=0.9), batch_size=2)


class Large(Exception):
    """Sound, as far as planning says, and too much work for a case."""


@dataclass(frozen=True)
class Target:
    """A kind of file: what whole ones look like, how they are damaged, what is done with a damaged one."""

    seeds: Callable[[], Sequence[Any]]
    damage: Callable[[Any, Rng], Any]
    run: Callable[[Any, Rng, Path], None]
    suffix: str

    def made(self, name: str, number: int) -> tuple[Any, Rng]:
        """The file of a case, and the randomness that is left for what is done with it.

        Numbers below 0 are what earlier runs have found, as it was found.
        """
        rng = np.random.default_rng(
            [int.from_bytes(hashlib.sha256(name.encode()).digest()[:4], "big"), abs(number)]
        )
        seeds = self.seeds()
        if number < 0:
            return seeds[number], rng
        return self.damage(seeds[int(rng.integers(len(seeds)))], rng), rng


# Models


def one_operator(example: Any, behind: bool) -> Module:
    """An operator, perhaps behind an addition that is trained; its other floats are weights."""
    values = [v.astype(np.float32) if v is not None and v.dtype == np.float64 else v for v in example.inputs]
    graph = Graph("main")
    fed = next((i for i, v in enumerate(values) if v is not None and v.dtype == np.float32), None)
    inputs: list[Tensor | None] = []
    for i, value in enumerate(values):
        if value is None:
            inputs.append(None)
        elif i == fed and i not in example.constant:
            x = Tensor("x", TensorType(DType.FLOAT32, value.shape))
            graph.inputs.append(x)
            added = graph.emit(REGISTRY["ADD"](), x, constant(value, "p"), name="added") if behind else x
            inputs.append(added)
        else:
            inputs.append(constant(value, f"w{i}"))
    if not graph.inputs:
        first = next(i for i, v in enumerate(values) if v is not None)
        inputs[first] = Tensor("x", TensorType(DType.of(values[first].dtype), values[first].shape))
        graph.inputs.append(inputs[first])  # type: ignore[arg-type]
    graph.outputs = graph.emit_all(example.op, *inputs, name="y")
    for index, node in enumerate(graph.nodes):
        node.index = index
    return Module([graph])


@cache
def models() -> list[bytes]:
    found = []
    for _, cls in sorted(REGISTRY.items()):
        for example in cls.examples():
            with suppress(ct.CircleTrainError, StopIteration):
                found += [format.write(one_operator(example, behind)) for behind in (False, True)]
    hand_made = [networks.mlp(), networks.cnn(), networks.two_headed(), networks.tied()]
    found += [format.write(model.with_training(TRAINED).module) for model in hand_made] * 10
    found += [
        format_models.rich_file(),
        format_models.rich_file(b"TFL3"),
        format.write(format_models.small()),
    ] * 10
    return found + [path.read_bytes() for path in kept("model")]


def kept(target: str) -> list[Path]:
    """What earlier runs found: the last of the seeds."""
    return sorted(KEPT.glob(f"{target}-*"))


def damaged_model(raw: bytes, rng: Rng) -> bytes:
    """Mostly its tables changed one by one, so that it gets beyond the reader."""
    identifier = raw[4:8]
    if rng.random() < 0.15 or identifier.decode("latin-1") not in SCHEMAS:
        return damaged_bytes(raw, rng)
    try:
        tables = decode(raw, "Model", identifier, SCHEMAS[identifier.decode()])
        return encode("Model", damaged_tables(tables, rng), identifier)
    except (
        ct.CircleTrainError,
        KeyError,
        TypeError,
        ValueError,
        AttributeError,
        OverflowError,
        struct.error,
    ):
        return damaged_bytes(raw, rng)


def run_model(raw: bytes, rng: Rng, folder: Path) -> None:
    """Load, check, infer, train a step by the native engine, export, reload."""
    exercise(ct.load(raw), rng, folder, ".circle")


def exercise(model: ct.Model, rng: Rng, folder: Path, suffix: str) -> None:
    """Everything that a person would do with a model; what one part refuses does not keep the next from being tried."""
    [str(node) for graph in model.module.graphs for node in graph.nodes]
    repr((model, model.inputs, model.outputs, model.operators))
    operator_checks(model)
    refusals: list[ct.CircleTrainError] = []
    for part in (_check, _infer, _train):
        try:
            part(model, rng, folder, suffix)
        except ct.CircleTrainError as error:
            refusals.append(error)
    if refusals:
        raise refusals[-1]


def _check(model: ct.Model, rng: Rng, folder: Path, suffix: str) -> None:
    with suppress(ct.CircleTrainError):
        repr(model.training)
    choices(model, "mse", "adam", 2)


def _infer(model: ct.Model, rng: Rng, folder: Path, suffix: str) -> None:
    session = ct.InferenceSession(model, threads=1)
    inputs = [ones(t, rng) for t in model.module.main.inputs]
    guard_size(inputs)
    probe = ct.TrainSession(model, _config(model), threads=1, backend="reference")
    with suppress(ct.CircleTrainError):
        refuse_large(probe)
    session(*inputs)


def _train(model: ct.Model, rng: Rng, folder: Path, suffix: str) -> None:
    changes = pick(rng, ({}, {}, {}, {"memory_budget": 1}, {"activations": "bfloat16"}))
    session = ct.TrainSession(model, _config(model, **changes), threads=1)
    refuse_large(session)
    inputs = [ones(t, rng) for t in session.program.inputs]
    targets = [np.zeros(t.shape, t.dtype.numpy) for t in session.program.targets]
    before = {name: np.array(value) for name, value in session.parameters.items()}
    try:
        session.train_step(inputs, targets)
    except ct.CircleTrainError:
        for name, value in session.parameters.items():
            assert np.array_equal(before[name], value, equal_nan=True), f"a refused step changed '{name}'"
        return
    path = folder / f"out{suffix}"
    session.export(path)
    ct.load(path)


def _config(model: ct.Model, **changes: Any) -> ct.TrainConfig:
    losses = ["mse" if t.dtype.is_float else "unused" for t in model.module.main.outputs]
    return TRAINED.replace(loss=losses or "mse", **changes)


def refuse_large(session: ct.TrainSession) -> None:
    """Go no further with what is only large."""
    program = session.program
    if program.flops > LARGE_WORK or program.arena_bytes > LARGE_BYTES:
        raise Large
    str(session.plan)


def guard_size(arrays: Sequence[np.ndarray]) -> None:
    if sum(array.nbytes for array in arrays) > LARGE_BYTES:
        raise Large


def ones(tensor: Tensor, rng: Rng) -> np.ndarray:
    """Numbers for an input; open sizes are 2."""
    shape = tuple(2 if size < 0 else size for size in tensor.shape)
    if np.prod(shape, dtype=np.float64) > LARGE_BYTES:
        raise Large
    dtype = tensor.dtype.numpy or np.dtype(np.float32)
    return rng.uniform(-2, 3, shape).astype(dtype) if dtype.kind != "O" else np.zeros(shape, dtype)


# ONNX


@cache
def onnx_models() -> list[bytes]:
    from onnx_cases import node_cases, with_constants

    found = {}
    for case in (*node_cases(), *with_constants(node_cases())):
        if len(case.model) < 20_000:
            found[hashlib.sha256(case.model).hexdigest()] = case.model
    nets = [random_onnx.network(seed)[0].SerializeToString() for seed in range(30)]
    return [found[key] for key in sorted(found)] + nets * 3 + [path.read_bytes() for path in kept("onnx")]


def damaged_onnx(raw: bytes, rng: Rng) -> bytes:
    import onnx
    from google.protobuf.message import DecodeError

    if rng.random() < 0.2:
        return damaged_bytes(raw, rng)
    try:
        return damaged_message(onnx.ModelProto.FromString(raw), rng)
    except (DecodeError, ValueError, TypeError):
        return damaged_bytes(raw, rng)


def run_onnx(raw: bytes, rng: Rng, folder: Path) -> None:
    path = folder / "m.onnx"
    path.write_bytes(raw)
    exercise(ct.load(path), rng, folder, str(pick(rng, (".circle", ".onnx"))))


# Checkpoints


@cache
def sessions() -> dict[str, Callable[[], ct.TrainSession]]:
    """How the session is opened that a checkpoint of this name was written by."""
    images = {"batch_size": 2, "loss": "mse"}
    ort = {
        "loss": ct.losses.SparseCategoricalCrossentropy(from_logits=True),
        "batch_size": 4,
        "frozen": ["fc1.weight"],
        "optimizer": ct.optimizers.AdamW(0.02, style="ort", epsilon=1e-6, weight_decay=0.0),
    }

    def opened(model: Any, **settings: Any) -> Callable[[], ct.TrainSession]:
        return lambda: ct.TrainSession(model, ct.TrainConfig(**settings), threads=1)

    return {
        "mlp.ckpt": opened(networks.mlp(), **images),
        "mlp.safetensors": opened(networks.mlp(), **images),
        "cnn.ckpt": opened(networks.cnn(), optimizer=ct.optimizers.SGD(0.1), **images),
        "cnn.safetensors": opened(networks.cnn(), optimizer=ct.optimizers.SGD(0.1, momentum=0.5), **images),
        "checkpoint_adamw": opened(DATA / "ort" / "mlp.onnx", **ort),
        "checkpoint_weights": opened(DATA / "ort" / "mlp.onnx", **ort),
    }


@cache
def checkpoints() -> list[tuple[str, bytes]]:
    import tempfile

    found = []
    with tempfile.TemporaryDirectory() as folder:
        for name, opened in sessions().items():
            if name.startswith("checkpoint_"):
                found.append((name, (DATA / "ort" / name).read_bytes()))
                continue
            session = opened()
            step(session)
            session.save_checkpoint(Path(folder) / name)
            found.append((name, (Path(folder) / name).read_bytes()))
    return found + [(f"mlp{path.suffix}", path.read_bytes()) for path in kept("checkpoint")]


def step(session: ct.TrainSession) -> None:
    program = session.program
    arrays = [np.zeros(t.shape, t.dtype.numpy) for t in (*program.inputs, *program.targets)]
    session.train_step(arrays[: len(program.inputs)], arrays[len(program.inputs) :])


def damaged_checkpoint(seed: tuple[str, bytes], rng: Rng) -> tuple[str, bytes]:
    name, raw = seed
    if not name.endswith(".safetensors") or rng.random() < 0.3:
        return name, damaged_bytes(raw, rng)
    (length,) = struct.unpack_from("<Q", raw)
    header = json.loads(damaged_json(raw[8 : 8 + length].decode(), rng))
    metadata = header.get("__metadata__") if isinstance(header, dict) else None
    if isinstance(metadata, dict):
        for key in ("progress", "config", "fit", "properties"):
            with suppress(ValueError, TypeError, KeyError):
                if rng.random() < 0.3:
                    metadata[key] = damaged_json(metadata[key], rng)
        with suppress(TypeError, ValueError, AttributeError):
            metadata["checksum"] = safetensors._checksum(header, raw[8 + length :])
    text = json.dumps(header).encode()
    return name, struct.pack("<Q", len(text)) + text + raw[8 + length :]


def run_checkpoint(case: tuple[str, bytes], rng: Rng, folder: Path) -> None:
    """Refused with nothing changed, or taken over and trained on."""
    name, raw = case
    path = folder / name
    path.write_bytes(raw)
    session = sessions()[name]()
    session.prepare()
    before = {key: np.array(array) for key, array in session.state.arrays.items()}
    counted = (session.state.step, session.state.learning_rate)
    with suppress(ct.CircleTrainError):
        by_suffix.stored_config(path)
    try:
        session.load_checkpoint(path)
    except ct.CircleTrainError:
        assert counted == (session.state.step, session.state.learning_rate), (
            "a refused checkpoint was counted"
        )
        for key, array in before.items():
            assert np.array_equal(array, session.state.arrays[key], equal_nan=True), f"{key} was changed"
        raise
    step(session)
    session.save_checkpoint(folder / f"again{path.suffix or '.safetensors'}")


# Packages


@cache
def packages() -> list[dict[str, bytes]]:
    import tempfile

    found = []
    for model in (networks.mlp(), networks.cnn(), DATA / "ort" / "mlp.onnx"):
        with tempfile.TemporaryDirectory() as folder:
            config = ct.TrainConfig(loss="mse", batch_size=2)
            session = ct.TrainSession(model, config, threads=1)
            step(session)
            session.save_checkpoint(Path(folder) / "c.safetensors")
            made = ct.make_artifacts(
                model, Path(folder) / "p", config, checkpoint=Path(folder) / "c.safetensors"
            )
            found.append({path.name: path.read_bytes() for path in sorted(made.iterdir())})
    return found


def damaged_package(files: Mapping[str, bytes], rng: Rng) -> dict[str, bytes]:
    name = pick(rng, sorted(files))
    is_model = name.endswith(".circle")
    return {
        **files,
        name: damaged_model(files[name], rng)
        if is_model
        else damaged_checkpoint((name, files[name]), rng)[1],
    }


def run_package(files: Mapping[str, bytes], rng: Rng, folder: Path) -> None:
    for name, raw in files.items():
        (folder / name).write_bytes(raw)
    session = ct.TrainSession(folder, threads=1)
    refuse_large(session)
    step(session)
    session.export(folder / "out.tflite")
    ct.load(folder / "out.tflite")


# Settings


@cache
def settings() -> list[str]:
    optimizers, losses, schedules = ct.optimizers, ct.losses, ct.schedules
    groups = [
        optimizers.ParameterGroup("fc*", multiplier=0.5),
        optimizers.ParameterGroup(["x"], learning_rate=0.1),
    ]
    configs = [
        ct.TrainConfig(loss="mse", optimizer=optimizers.SGD(0.1, momentum=0.9, nesterov=True, groups=groups)),
        ct.TrainConfig(loss="huber", optimizer=optimizers.RMSprop(0.1), metrics=["mae"], memory_budget="1MB"),
        ct.TrainConfig(
            loss=losses.CategoricalCrossentropy(class_weights=[1, 2, 3, 4], label_smoothing=0.1),
            optimizer=optimizers.AdamW(schedules.Cosine(0.1, 10, warmup_steps=2), clip_norm=1.0),
            metrics=["categorical_accuracy", ct.metrics.TopKCategoricalAccuracy(k=2)],
        ),
        ct.TrainConfig(
            loss=0.5 * losses.MeanSquaredError() + losses.MeanAbsoluteError(), trainable=("last", 2)
        ),
        ct.TrainConfig(
            loss="mse", optimizer=optimizers.Adagrad(schedules.OneCycle(0.1, 10)), frozen=["fc0*"]
        ),
        ct.TrainConfig(loss="mse", optimizer=optimizers.Adam(schedules.Step(0.1, 2)), activations="bfloat16"),
        ct.TrainConfig(loss=["mse"], loss_weights=[2.0], batch_norm="train", extra_outputs=["fc0"], epochs=3),
        networks.mlp()
        .with_training(TRAINED.replace(loss=losses.custom(lambda o, t: abs(o - t).mean())))
        .training,
    ]
    onert = [to_onert_json(ct.TrainConfig(loss="mse", optimizer=optimizers.Adam(0.1)), 3)]
    made = [json.dumps(to_dict(c)) for c in configs if c is not None] + [json.dumps(c) for c in onert]
    return made + [path.read_text() for path in kept("settings")]


def run_settings(text: str, rng: Rng, folder: Path) -> None:
    """Read, written into a model, read again, trained by."""
    path = folder / "settings.json"
    path.write_text(text, encoding="utf-8", errors="surrogatepass")
    from circle_train.cli.onert.plus import read_settings

    config = read_settings(str(path))
    networks.mlp().with_training(config).save(folder / "m.circle")
    session = ct.TrainSession(folder / "m.circle", threads=1)
    if session.config.batch_size > 1000:
        raise Large
    refuse_large(session)
    step(session)


# Data files and images


@cache
def data_files() -> list[tuple[str, bytes]]:
    x = np.random.default_rng(0).normal(size=(6, 6)).astype(np.float32)
    found: list[tuple[str, bytes]] = []
    for dtype in ("f4", "f8", "i2", "u1", "?", "f2"):
        raw = io.BytesIO()
        np.save(raw, x.astype(dtype))
        found.append(("x.npy", raw.getvalue()))
    raw = io.BytesIO()
    np.savez(raw, x=x, y=x[:, :4])
    found.append(("x.npz", raw.getvalue()))
    raw = io.BytesIO()
    np.savez_compressed(raw, x=x, y=x[:, :4])
    found.append(("x.npz", raw.getvalue()))
    idx = bytes([0, 0, 13, 2]) + struct.pack(">2I", 6, 6) + x.astype(">f4").tobytes()
    found += [("x.idx", idx), ("x.gz", gzip.compress(idx, mtime=0)), ("x.bin", x.tobytes())]
    rows = ["a,b,c,d,e,label", *(",".join(f"{v:.3f}" for v in row[:5]) + ",cat" for row in x)]
    found += [
        ("x.csv", "\n".join(rows).encode()),
        ("x.csv", "\n".join(r.rpartition(",")[0] for r in rows[1:]).encode()),
    ]
    return found + [(f"x{path.suffix}", path.read_bytes()) for path in kept("data")]


def damaged_data(seed: tuple[str, bytes], rng: Rng) -> tuple[str, bytes]:
    name, raw = seed
    if name.endswith(".npy") and rng.random() < 0.5:  # the header is text
        end = raw.index(b"\n")
        words = (
            b"-1",
            b"99999999999",
            b"0",
            b"'O'",
            b"'|S0'",
            b"'<c8'",
            b"True",
            b"()",
            b"(6,",
            b"'<M8[s]'",
            b"[",
            b"'V0'",
        )
        place = int(rng.integers(10, end))
        word = pick(rng, words)
        return name, raw[:place] + word + raw[place + len(word) :]
    if name.endswith(".npz") and rng.random() < 0.5:
        with zipfile.ZipFile(io.BytesIO(raw)) as archive:
            inner = {entry: archive.read(entry) for entry in archive.namelist()}
        chosen = pick(rng, sorted(inner))
        inner[chosen] = damaged_data((chosen, inner[chosen]), rng)[1]
        made = io.BytesIO()
        with zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED) as archive:
            for entry, content in inner.items():
                archive.writestr(zipfile.ZipInfo(entry), content)
        return name, made.getvalue()
    if name.endswith(".gz") and rng.random() < 0.6:
        return name, gzip.compress(damaged_bytes(gzip.decompress(raw), rng), mtime=0)
    return name, damaged_bytes(raw, rng)


def run_data(case: tuple[str, bytes], rng: Rng, folder: Path) -> None:
    """As a training's input, and through the command that makes data files."""
    from circle_train.data.prepare import Preparation, open_source, prepare

    name, raw = case
    path = folder / name
    path.write_bytes(raw)
    refusal: ct.CircleTrainError | None = None
    session = ct.TrainSession(networks.mlp(), ct.TrainConfig(loss="mse", batch_size=4), threads=1)
    with suppress(ct.CircleTrainError):
        session.fit(path, np.zeros((6, 4), np.float32), epochs=1, verbose=0)
    with suppress(ct.CircleTrainError):
        session.predict(path)
    try:
        label = pick(rng, (None, "label", -1)) if name.endswith(".csv") else None
        source = open_source(path, None, label)
        prepare(source, Preparation(classes=pick(rng, (None, 0, 4)), seed=1), folder / "out")
    except ct.CircleTrainError as error:
        refusal = error
    if refusal is not None:
        raise refusal


@cache
def images() -> list[tuple[str, bytes]]:
    from PIL import Image

    rng = np.random.default_rng(0)
    found = []
    for mode, shape in (("L", (9, 7)), ("RGB", (9, 7, 3)), ("RGBA", (5, 5, 4)), ("P", (8, 8)), ("1", (8, 8))):
        picture = Image.fromarray(rng.integers(0, 255, shape).astype(np.uint8)).convert(mode)
        for suffix, kind in (
            (".png", "PNG"),
            (".bmp", "BMP"),
            (".gif", "GIF"),
            (".jpg", "JPEG"),
            (".webp", "WEBP"),
        ):
            raw = io.BytesIO()
            with suppress(OSError, KeyError):
                picture.save(raw, kind)
                found.append((f"a{suffix}", raw.getvalue()))
    return found + [(f"a{path.suffix}", path.read_bytes()) for path in kept("image")]


def damaged_image(seed: tuple[str, bytes], rng: Rng) -> tuple[str, bytes]:
    return seed[0], damaged_bytes(seed[1], rng)


def run_image(case: tuple[str, bytes], rng: Rng, folder: Path) -> None:
    """One of a folder of images by class, as many as the model tells apart; those of the others are whole."""
    whole = images()[0]
    for label, (name, raw) in {"ant": case, "bee": whole, "cat": whole, "dog": whole, "elk": whole}.items():
        (folder / "photos" / label).mkdir(parents=True, exist_ok=True)
        (folder / "photos" / label / name).write_bytes(raw)
    session = ct.TrainSession(networks.cnn(), ct.TrainConfig(loss="mse", batch_size=2), threads=1)
    session.fit(folder / "photos", epochs=1, verbose=0)


TARGETS = {
    "model": Target(models, damaged_model, run_model, ".circle"),
    "onnx": Target(onnx_models, damaged_onnx, run_onnx, ".onnx"),
    "checkpoint": Target(checkpoints, damaged_checkpoint, run_checkpoint, ""),
    "package": Target(packages, damaged_package, run_package, ""),
    "settings": Target(settings, damaged_json, run_settings, ".json"),
    "data": Target(data_files, damaged_data, run_data, ""),
    "image": Target(images, damaged_image, run_image, ""),
    "sound": Target(samples.recordings, damaged_bytes, samples.run_sound, ".wav"),
    "text": Target(samples.tokenizers, damaged_json, samples.run_text, ".json"),
    "table": Target(samples.tables, damaged_data, samples.run_table, ""),
    "described": Target(samples.described, samples.damaged_description, samples.run_described, ".tflite"),
    "quantized": Target(models, damaged_model, samples.run_quantized, ".circle"),
}
if samples.has_flower():
    TARGETS["record"] = Target(samples.records, samples.damaged_record, samples.run_record, "")

__all__ = ["TARGETS", "Large", "Target", "ct", "kept"]
