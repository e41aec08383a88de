"""The commands plus and data, and raw files as ONERT lays them out."""

from __future__ import annotations

import json
import struct
import sys
from pathlib import Path

import numpy as np
import pytest
from idx_files import make_family
from networks import mlp
from onert_files import FOLDER, config_of

import circle_train as ct
from circle_train.cli.main import main
from circle_train.data.dataset import Dataset, open_data
from circle_train.data.files import read_idx
from circle_train.ir.tensor_type import Array

MNIST = Path(__file__).parents[1] / "data" / "mnist.circle"


@pytest.fixture
def family(tmp_path: Path) -> Path:
    return make_family(tmp_path)


def test_plus(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model, out = str(tmp_path / "m.circle"), str(tmp_path / "o.circle")
    Path(model).write_bytes(MNIST.read_bytes())
    (tmp_path / "s.json").write_text(
        json.dumps({"loss": "mse", "optimizer": {"type": "sgd", "learning_rate": 0.5}})
    )
    assert main(["plus", model]) == 0
    assert capsys.readouterr().out == "No hyperparameters\n"
    assert main(["plus", model, str(tmp_path / "s.json"), out]) == 0
    capsys.readouterr()
    assert main(["plus", out]) == 0
    assert json.loads(capsys.readouterr().out)["optimizer"] == {"type": "sgd", "learning_rate": 0.5}
    assert main(["plus", out, "--onert"]) == 0
    assert json.loads(capsys.readouterr().out)["batchSize"] == 32
    assert main(["plus", out, "--remove"]) == 0
    assert ct.load(out).training is None
    assert main(["plus", out, "a", "b", "--remove"]) == 1
    assert main(["plus", out, str(tmp_path / "missing.json")]) == 1
    assert "cannot be read" in capsys.readouterr().err


@pytest.mark.skipif(sys.version_info < (3, 11), reason="TOML is read from Python 3.11 on")
def test_plus_reads_toml(tmp_path: Path) -> None:
    (tmp_path / "s.toml").write_text(
        'loss = "huber"\ntrainable = "last:2"\n[optimizer]\ntype = "adamw"\nweight_decay = 0.1\n'
    )
    assert main(["plus", str(MNIST), str(tmp_path / "s.toml"), str(tmp_path / "o.circle")]) == 0
    expected = ct.TrainConfig("huber", ct.optimizers.AdamW(weight_decay=0.1), trainable=("last", 2))
    assert ct.load(tmp_path / "o.circle").training == expected


def made(out: Path) -> dict[str, Array]:
    return {path.name: np.fromfile(path, np.float32) for path in out.iterdir()}


def test_data_from_idx_npy_npz_and_csv(
    family: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The same samples in four containers become the same files."""
    images, labels = family / "train-images-idx3-ubyte.gz", family / "train-labels-idx1-ubyte"
    x, y = np.asarray(read_idx(images)), np.arange(96) % 10
    np.save(tmp_path / "x.npy", x)
    np.save(tmp_path / "y.npy", y)
    np.savez(tmp_path / "xy.npz", x=x, y=y)
    rows = np.concatenate([x.reshape(96, -1), y[:, None]], axis=1)
    header = ",".join([f"p{i}" for i in range(784)] + ["digit"])
    np.savetxt(tmp_path / "xy.csv", rows, "%d", ",", header=header, comments="")
    options = ["--split", "train", "test:0.25", "--scale", "255", "--one-hot", "10", "--seed", "4"]
    sources = {
        "idx": [str(images), "--labels", str(labels)],
        "npy": [str(tmp_path / "x.npy"), "--labels", str(tmp_path / "y.npy")],
        "npz": [str(tmp_path / "xy.npz")],
        "csv": [str(tmp_path / "xy.csv"), "--label-column", "digit"],
    }
    results = {}
    for name, source in sources.items():
        assert main(["data", *source, *options, "--out", str(tmp_path / name)]) == 0
        results[name] = made(tmp_path / name)
    assert set(results["idx"]) == {
        f"{part}.bin" for part in ("train.input.72", "train.output.72", "test.input.24", "test.output.24")
    }
    order = np.random.default_rng(4).permutation(96)
    assert np.array_equal(
        results["idx"]["train.input.72.bin"], (x[order[:72]] / np.float32(255)).astype(np.float32).ravel()
    )
    assert np.array_equal(
        results["idx"]["test.output.24.bin"], np.eye(10, dtype=np.float32)[y[order[72:]]].ravel()
    )
    for name, files in results.items():
        assert all(np.array_equal(files[file], results["idx"][file]) for file in results["idx"]), name
    assert "samples" in capsys.readouterr().out


def test_data_layouts(tmp_path: Path) -> None:
    x = np.arange(2 * 3 * 4 * 5).reshape(2, 3, 4, 5)
    np.save(tmp_path / "x.npy", x)
    for layout, expected in (
        ("nchw", x.transpose(0, 3, 1, 2)),
        ("nchw-to-nhwc", x.transpose(0, 2, 3, 1)),
        ("nhwc", x),
    ):
        out = tmp_path / layout
        assert (
            main(
                [
                    "data",
                    str(tmp_path / "x.npy"),
                    "--layout",
                    layout,
                    "--out",
                    str(out),
                    "--offset",
                    "1",
                    "--scale",
                    "2",
                ]
            )
            == 0
        )
        assert np.array_equal(made(out)["train.input.2.bin"], ((expected - 1) / 2).astype(np.float32).ravel())


def test_data_from_image_folders(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    image = pytest.importorskip("PIL.Image")
    for name, colour in (("red", (255, 0, 0)), ("blue", (0, 0, 255))):
        (tmp_path / "images" / name).mkdir(parents=True)
        for number in range(3):
            image.new("RGB", (9 + number, 7), colour).save(tmp_path / "images" / name / f"{number}.png")
    command = [
        "data",
        str(tmp_path / "images"),
        "--size",
        "4x6",
        "--scale",
        "255",
        "--one-hot",
        "--out",
        str(tmp_path / "o"),
    ]
    assert main([*command, "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert facts["classes"] == ["blue", "red"] and facts["files"][0]["shape"] == [4, 6, 3]
    files = made(tmp_path / "o")
    pixels = files["train.input.6.bin"].reshape(6, 24, 3)
    assert np.array_equal(pixels[:3], np.broadcast_to([0, 0, 1], (3, 24, 3)))
    assert np.array_equal(files["train.output.6.bin"].reshape(6, 2), np.repeat(np.eye(2), 3, axis=0))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["x.npy", "--split", "a:0.7", "b:0.7"], "cannot be split into a 6, b 6"),
        (["x.npy", "--split", "a", "b"], "only one can take the rest"),
        (["x.npy", "--split", "a:-1"], "expected NAME, NAME:FRACTION"),
        (["x.npy", "--labels", "y.npy"], "9 samples and 8 labels"),
        (
            ["x.npy", "--labels", "x9.npy", "--one-hot", "3"],
            "label 3 at position 3, expected whole numbers 0 … 2",
        ),
        (["x.txt"], "ends in '.txt'"),
        (["missing.npy"], "missing.npy"),
        (["bad.csv"], "bad.csv"),
        (["bad.idx"], "its header asks for 108"),
        (["two.npz"], "holds a, b, expected 'x' and 'y'"),
    ],
)
def test_data_refuses(
    arguments: list[str],
    message: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    np.save("x.npy", np.zeros((9, 2)))
    np.save("x9.npy", np.arange(9))
    np.save("y.npy", np.zeros(8))
    np.savez("two.npz", a=np.zeros(1), b=np.zeros(1))
    Path("x.txt").write_text("1")
    Path("bad.csv").write_text("1,2\n3,x\n")
    Path("bad.idx").write_bytes(bytes([0, 0, 8, 2]) + struct.pack(">II", 8, 12) + bytes(90))
    assert main(["data", *arguments]) == 1
    err = capsys.readouterr().err
    assert message in err and err.count("\n") == 1 and "Traceback" not in err


# Raw files


def test_raw_files_of_two_inputs_are_read_by_input(tmp_path: Path) -> None:
    """All samples of input 0, then all of input 1."""
    model = ct.load(FOLDER / "two_input.circle")
    run = {
        "loss": "mse",
        "reduction": "mean",
        "optimizer": "sgd",
        "learning_rate": 0.05,
        "batch_size": 5,
        "num_of_trainable_ops": -1,
    }
    numbers = np.random.default_rng(0)
    x = [numbers.standard_normal((10, *t.shape[1:])).astype(np.float32) for t in model.inputs]
    y = numbers.standard_normal((10, *model.outputs[0].shape[1:])).astype(np.float32)
    (tmp_path / "x.bin").write_bytes(b"".join(a.tobytes() for a in x))
    (tmp_path / "y.raw").write_bytes(y.tobytes())
    sessions = [ct.TrainSession(model, config_of(run)) for _ in range(2)]
    sessions[0].fit(x, y, shuffle=False, verbose=0)
    sessions[1].fit(tmp_path / "x.bin", tmp_path / "y.raw", shuffle=False, verbose=0)
    assert np.array_equal(sessions[0].parameters.flat(), sessions[1].parameters.flat())


@pytest.mark.parametrize("size", [0, 23, 47])
def test_a_raw_file_of_part_of_a_sample_is_refused(size: int, tmp_path: Path) -> None:
    (tmp_path / "x.bin").write_bytes(bytes(size))
    session = ct.TrainSession(mlp(), ct.TrainConfig(loss="mse", batch_size=2))
    with pytest.raises(
        ct.DataError, match=rf"has {size} bytes, expected a multiple of 24 = 24 \('x'\) bytes a sample"
    ):
        session.predict(tmp_path / "x.bin")


@pytest.mark.slow
def test_raw_files_over_four_gigabytes_are_mapped(tmp_path: Path) -> None:
    """A sparse file: nothing of it is in memory but what a batch takes."""
    program = ct.TrainSession(MNIST, ct.TrainConfig("mse", "sgd", 4)).program
    count = (5 << 30) // 3136
    with open(tmp_path / "x.bin", "wb") as file:
        file.seek((count - 1) * 3136)
        file.write(np.full(784, 7, np.float32).tobytes())
    with open(tmp_path / "y.bin", "wb") as file:
        file.truncate(count * 40)
    data = open_data(tmp_path / "x.bin", tmp_path / "y.bin", program.inputs, program.targets)
    assert isinstance(data, Dataset) and len(data) == count
    inputs, _ = data.take(slice(count - 1, count))
    assert (np.asarray(inputs[0]) == 7).all()
