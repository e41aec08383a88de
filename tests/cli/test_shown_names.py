"""Names that a file gives things reach no terminal raw, and files that are no files are not opened."""

from __future__ import annotations

import os
import warnings
from pathlib import Path

import numpy as np
import pytest

import circle_train as ct
from circle_train import format
from circle_train.cli.main import main
from circle_train.ir import DType, Graph, Module, Tensor, TensorType
from circle_train.ir.graph import constant
from circle_train.ops import REGISTRY

DATA = Path(__file__).parents[1] / "data"

X, Y = np.ones((4, 6), np.float32), np.ones((4, 5), np.float32)

EVIL = "\x1b]0;owned\x07\x1b[2J\x9b31m\u202egpj\u2028\r\nerror: fake <script>alert(1)</script>"


# Names


@pytest.fixture(scope="module")
def evil(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model whose every name fights the terminal, and data for it."""
    folder = tmp_path_factory.mktemp("evil")
    rng = np.random.default_rng(0)
    graph = Graph(EVIL)
    x = Tensor(f"x{EVIL}", TensorType(DType.FLOAT32, (1, 6)))
    graph.inputs.append(x)
    w = constant(rng.standard_normal((5, 6), np.float32), f"w{EVIL}")
    y = graph.emit(REGISTRY["FULLY_CONNECTED"](), x, w, None, name=f"y{EVIL}")
    graph.outputs += [y, graph.emit(REGISTRY["SOFTMAX"](), y, name=f"z{EVIL}")]
    (folder / "evil.circle").write_bytes(format.write(Module([graph], description=EVIL)))
    np.save(folder / "x.npy", rng.standard_normal((8, 6)).astype(np.float32))
    np.savez(folder / "y.npz", *2 * [np.eye(5, dtype=np.float32)[rng.integers(0, 5, 8)]])
    return folder


def unprintable(text: str) -> set[str]:
    return {c for c in text if not c.isprintable() and c != "\n"} | (
        {"fake"} if "\nerror: fake" in text else set()
    )


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="there are no pipes with names")
@pytest.mark.parametrize("kind", ["pipe", "device"])
@pytest.mark.parametrize(
    "words",
    [
        "info {d}/n.circle", "info {d}/n.tflite", "info {d}/n.onnx", "info {d}", "plus {m} {d}/s.json",
        "export {m} --checkpoint {d}/c.safetensors {t}/o.circle", "export {m} --checkpoint {d}/c.ckpt {t}/o.circle",
        "predict {m} --input {d}/x.npy", "predict {m} --input {d}/x.npz", "predict {m} --input {d}/x.bin",
        "data {d}/x.csv --out {t}/p", "train --resume {d}",
    ],
)  # fmt: skip
def test_a_pipe_or_a_device_is_no_file(
    words: str, kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A folder from a stranger may hold one under any name: it was waited for, or read until memory was full."""
    folder = tmp_path / "d"
    folder.mkdir()
    for name in ("n.circle", "n.tflite", "n.onnx", "training.circle", "s.json", "c.safetensors", "c.ckpt"):
        odd(folder / name, kind)
    for name in ("x.npy", "x.npz", "x.bin", "x.csv", "run.json"):
        odd(folder / name, kind)
    given = {"m": DATA / "mlp.circle", "d": folder, "t": tmp_path}
    assert main([word.format(**given) for word in words.split()]) == 1
    assert "it is a pipe or a device, expected a file" in capsys.readouterr().err


def odd(path: Path, kind: str) -> None:
    if kind == "pipe":
        os.mkfifo(path)
    else:
        path.symlink_to("/dev/zero")


@pytest.mark.parametrize(
    "words",
    [
        "info {m}", "info {m} --operators", "info {m} --json", "check {m}", "check {m} --json",
        "predict {m} --input {d}/x.npy", "convert {m} {t}/out.tflite",
        "eval {m} --input {d}/x.npy --expected {d}/y.npz --loss mse",
        "eval {m} --input {d}/y.npz --expected {d}/y.npz --loss mse",
        "train {m} --input {d}/x.npy --expected {d}/y.npz --loss categorical_crossentropy --run-dir {t}/run",
    ],
)  # fmt: skip
def test_names_of_a_file_do_not_reach_the_terminal_raw(
    words: str, evil: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        main([word.format(m=evil / "evil.circle", d=evil, t=tmp_path) for word in words.split()])
    said = capsys.readouterr()
    assert said.out + said.err
    assert not unprintable(said.out) and not unprintable(said.err)
    for page in (*tmp_path.rglob("*.txt"), *tmp_path.rglob("*.html"), *tmp_path.rglob("*.csv")):
        assert not unprintable(page.read_text(encoding="utf-8")), page.name


def test_objects_and_errors_show_names_on_one_line(evil: Path) -> None:
    session = ct.TrainSession(evil / "evil.circle", ct.TrainConfig(loss="mse", batch_size=4))
    with pytest.raises(ct.CircleTrainError) as error:
        session.parameters["nothing"] = 0
    with pytest.raises(ct.CircleTrainError) as other:
        ct.InferenceSession(evil / "evil.circle")(np.ones((2, 7), np.float32))
    shown = (error.value, other.value, session.model, session.parameters, *session.model.inputs)
    for text in (*map(str, shown), *map(repr, shown)):
        assert text.isprintable() and "x1b]0;owned" in text
    assert not unprintable(str(session.plan)) and not unprintable(str(session.profile()))


def test_names_that_are_no_text_are_written_as_escapes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Bytes of a file that are no UTF-8 are kept as they are; logs, archives and checksums could not hold them."""
    monkeypatch.chdir(tmp_path)
    graph, rng = Graph("net"), np.random.default_rng(0)
    x = Tensor("XXXXx", TensorType(DType.FLOAT32, (1, 6)))
    graph.inputs.append(x)
    for name in ("XXXXy", "file"):  # which numpy's savez takes for its own
        w = constant(rng.standard_normal((5, 6), np.float32), f"{name}/w")
        graph.outputs.append(graph.emit(REGISTRY["FULLY_CONNECTED"](), x, w, None, name=name))
    Path("n.circle").write_bytes(format.write(Module([graph])).replace(b"XXXX", b"\xff\xfe\xed\xa0"))
    np.save("x.npy", X)
    np.savez("y.npz", Y, Y)
    words = "train n.circle --input x.npy --expected y.npz --loss mse --metric mae --epochs 1 --run-dir run"
    assert main(words.split()) == 0, capsys.readouterr().err
    assert "\\udcff\\udcfe" in Path("run/log.csv").read_text(encoding="utf-8")
    assert main("train --resume run --epochs 2".split()) == 0, capsys.readouterr().err
    assert main("predict n.circle --input x.npy --output p.npz".split()) == 0, capsys.readouterr().err
    with np.load("p.npz") as archive:
        assert len(archive.files) == 2 and archive["file"].shape == (4, 5)


def test_letters_of_every_alphabet_stay_as_they_are() -> None:
    assert str(ct.ModelError("größe 尺寸 μ → ½")) == "größe 尺寸 μ → ½"
    assert str(ct.ModelError("half a character: \udc80")) == "half a character: \\udc80"
