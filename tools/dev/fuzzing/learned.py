"""What a session writes beside models: checkpoints, packages, settings."""

from __future__ import annotations

import json
import struct
import tempfile
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

import networks
import numpy as np

import circle_train as ct
from circle_train.checkpoints import by_suffix, safetensors
from circle_train.settings.as_json import to_dict
from circle_train.settings.onert_json import to_onert_json
from fuzzing.damage import Rng, damaged_bytes, damaged_json, pick
from fuzzing.models import DATA, TRAINED, Large, damaged_model, kept, refuse_large


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


@cache
def packages() -> list[dict[str, bytes]]:
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
