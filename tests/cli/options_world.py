"""Small files for every command: models that take pictures, tables, windows, texts and sounds, and samples of each."""

from __future__ import annotations

import shutil
import wave
from pathlib import Path

import numpy as np
from networks import finish, make, mlp, new_input, weight
from picture_net import picture_net
from sound_net import SAMPLES, sound_net

import circle_train as ct
from circle_train.format.metadata.description import Description
from circle_train.ir import DType, Graph, Tensor, TensorType
from circle_train.ir.graph import constant

DATA = Path(__file__).parents[1] / "data"
RNG = np.random.default_rng(7)
LOOKS = Description(kind="image", mean=(127.5,), std=(127.5,))


def write_world(folder: Path) -> Path:
    """All of it; names without paths, so that a copy serves as well."""
    write_models(folder)
    write_samples(folder)
    return folder


def write_models(folder: Path) -> None:
    net = mlp()
    net.save(folder / "net.circle")
    net.save(folder / "net.tflite")
    adam = ct.TrainConfig(loss="categorical_crossentropy", optimizer="adam", batch_size=4, epochs=2)
    net.with_training(adam).save(folder / "plus.circle")
    session = ct.TrainSession(net, adam)
    session.parameters["fc1/b"] = np.array([3, 0, 0, 0], np.float32)
    session.save_checkpoint(folder / "moved.safetensors")
    gained().save(folder / "gained.circle")
    open_rows().save(folder / "open.circle")
    picture_net().described(LOOKS).save(folder / "picture.tflite")
    write_named(folder / "named.tflite")
    open_picture().described(LOOKS).save(folder / "anysize.tflite")
    sound_net().save(folder / "sound.tflite")
    words().save(folder / "words.circle")
    shutil.copy(DATA / "mlp.circle", folder / "table.circle")
    shutil.copy(DATA / "int8_cnn.tflite", folder / "integers.tflite")


def gained() -> ct.Model:
    """A dense layer of x times a gain that is no sample."""
    x, gain = new_input("x", 1, 6), Tensor("gain", TensorType(DType.FLOAT32, ()))
    graph = Graph("gained", [x, gain])
    made = graph.emit(make("MUL"), x, gain, name="louder")
    return finish(
        graph, graph.emit(make("FULLY_CONNECTED"), made, weight("w", 4, 6), weight("b", 4), name="y")
    )


def write_named(path: Path) -> None:
    """The network for pictures with a head of two classes, whose weights are not those it begins with."""
    says = Description(
        kind="image", mean=(127.5,), std=(127.5,), labels=("circle", "square"), scores="softmax"
    )
    headed = picture_net().with_head(says.labels).described(says)
    session = ct.TrainSession(headed, ct.TrainConfig(loss="categorical_crossentropy", trainable=["head/*"]))
    for name, value in session.parameters.trainable().items():
        session.parameters[name] = np.random.default_rng(5).normal(size=value.shape).astype(np.float32)
    session.export(path)


def open_rows() -> ct.Model:
    """Rows of any number, each through a dense layer."""
    x = Tensor("x", TensorType(DType.FLOAT32, (1, 1, 6)), shape_signature=(-1, -1, 6))
    graph = Graph("open", [x])
    dense = make("FULLY_CONNECTED", keep_num_dims=True)
    return finish(graph, graph.emit(dense, x, weight("w", 4, 6), weight("b", 4), name="y"))


def open_picture() -> ct.Model:
    """The network for pictures of 32×32, told that any size does."""
    model = picture_net()
    (x,) = model.module.main.inputs
    x.shape_signature = (-1, -1, -1, 3)
    return model


def words() -> ct.Model:
    """The mean of what eight tokens mean, and a classifier of it."""
    x = new_input("tokens", 1, 8, dtype=DType.INT32)
    graph = Graph("words", [x])
    meant = graph.emit(make("GATHER", axis=0), weight("meanings", 12, 6), x, name="meant")
    axes = constant(np.array([1], np.int32), "axes")
    mean = graph.emit(make("MEAN"), meant, axes, name="mean")
    scores = graph.emit(make("FULLY_CONNECTED"), mean, weight("w", 4, 6), weight("b", 4), name="scores")
    return finish(graph, graph.emit(make("SOFTMAX", beta=1.0), scores, name="y"))


def write_samples(folder: Path) -> None:
    x = RNG.normal(size=(20, 6)).astype(np.float32)
    labels = x[:, :4].argmax(1)
    x[0, 0] = 60  # far from all others, so that it matters how a scale is chosen
    np.save(folder / "x.npy", x)
    np.save(folder / "small.npy", x / 1000)
    np.save(
        folder / "told.npy",
        np.eye(4, dtype=np.float32)[ct.InferenceSession(folder / "net.tflite")(x).argmax(1)],
    )
    np.save(folder / "y.npy", np.eye(4, dtype=np.float32)[labels])
    np.save(folder / "labels.npy", labels)
    np.save(folder / "rows.npy", RNG.normal(size=(8, 5, 6)).astype(np.float32))
    np.save(folder / "rows_y.npy", RNG.normal(size=(8, 5, 4)).astype(np.float32))
    np.save(folder / "images.npy", RNG.uniform(0, 255, (10, 8, 8, 3)).astype(np.float32))
    np.save(folder / "grey.npy", RNG.uniform(0, 255, (10, 8, 8)).astype(np.float32))
    (folder / "sgd.json").write_text('{"loss": "mean_squared_error", "optimizer": "sgd", "batch_size": 2}')
    shutil.copytree(DATA / "shapes", folder / "shapes")
    (folder / "shapes" / "square" / "0.png").unlink()
    shutil.copytree(folder / "shapes", folder / "damaged")
    (folder / "damaged" / "circle" / "9.png").write_bytes(b"no picture")
    write_rows(folder)
    write_sounds(folder / "tones")


def write_rows(folder: Path) -> None:
    table = [["a", "b", "c", "d", "e", "f", "label", "other", "who"]]
    for i in range(24):
        table.append([*(f"{n:.3f}" for n in RNG.normal(size=6)), "xy"[i % 2], "uvw"[i % 3], "pqrs"[i // 6]])
    (folder / "t.csv").write_text("\n".join(",".join(row) for row in table))
    plain = [row[:7] for row in table]
    (folder / "plain.csv").write_text("\n".join(",".join(row) for row in plain))
    walk = [f"{u},{RNG.normal():.3f},{'still' if k < 12 else 'move'}" for u in "pqrs" for k in range(24)]
    (folder / "walk.csv").write_text("\n".join(["user,x,label", *walk]))
    tokens = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "good", "bad", "film", "##s", "dull", "fine", "very", "a"]
    (folder / "vocab.txt").write_text("\n".join(tokens))
    (folder / "turned.txt").write_text("\n".join([*tokens[:4], *reversed(tokens[4:])]))
    said = [("good films", "pos"), ("bad film", "neg"), ("very fine", "pos"), ("a dull film", "neg")] * 3
    (folder / "said.csv").write_text("\n".join(["text,label", *(",".join(row) for row in said)]))


def write_sounds(folder: Path) -> None:
    """Two seconds each, so that they can be cut."""
    for name, hertz in (("high", 2000), ("low", 300)):
        (folder / name).mkdir(parents=True)
        for number in range(4):
            moments = np.arange(2 * SAMPLES) / SAMPLES
            sound = 0.5 * np.sin(2 * np.pi * (hertz + 20 * number) * moments)
            with wave.open(str(folder / name / f"{number}.wav"), "wb") as file:
                file.setnchannels(1)
                file.setsampwidth(2)
                file.setframerate(SAMPLES)
                file.writeframes((sound * 32767).astype("<i2").tobytes())
