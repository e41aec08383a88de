"""ONERT's three tools, flag by flag."""

from __future__ import annotations

import importlib
import json
import re
import struct
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from idx_files import make_family

import circle_train as ct
from circle_train.cli.onert import circle_plus_gen, generate_datafile, train as onert_train
from circle_train.cli.onert.plus import read_settings

ROOT = Path(__file__).parents[2]
MNIST = ROOT / "tests" / "data" / "mnist.circle"


@pytest.fixture
def family(tmp_path: Path) -> Path:
    return make_family(tmp_path)


@pytest.fixture
def raw(family: Path, tmp_path: Path) -> tuple[str, str]:
    """Raw input and output files of 80 samples."""
    generate = ["-d", "mnist", "-o", str(tmp_path / "raw"), "--data-dir", str(family), "--length", "80", "20"]
    assert generate_datafile.main(generate) == 0
    return str(tmp_path / "raw" / "train.input.80.bin"), str(tmp_path / "raw" / "train.output.80.bin")


FLAGS = [
    "--epoch", "2", "--loss", "2", "--loss_reduction_type", "1", "--optimizer", "2",
    "--learning_rate", "0.001", "--batch_size", "16", "--num_of_trainable_ops", "-1",
]  # fmt: skip


# onert_train


def test_onert_train_prints_what_onert_prints(
    raw: tuple[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = ["--load_input:raw", raw[0], "--load_expected:raw", raw[1]]
    outputs = {kind: str(tmp_path / f"out.{kind}") for kind in ("circle", "ckpt")}
    exports = ["--export_circle", outputs["circle"], "--export_checkpoint", outputs["ckpt"]]
    extra = [
        "--metric",
        "0",
        "--validation_split",
        "0.2",
        "--verbose_level",
        "1",
        "-m",
        "--output_sizes",
        "[0,40]",
    ]
    capsys.readouterr()
    assert onert_train.main([*FLAGS, *data, *exports, *extra, str(MNIST)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[:7] == [
        f"Model Filename {MNIST}",
        "== training parameter ==",
        "- learning_rate        = 0.001",
        "- batch_size           = 16",
        "- loss_info            = {loss = categorical crossentropy, reduction = sum over batch size}",
        "- optimizer            = adam",
        "- num_of_trainable_ops = -1",
    ]
    number = r"\[0\] \d+\.\d{4}"
    epoch = rf"Epoch 2/2 - time: \d+\.\d{{3}}ms/step - loss: {number} - categorical_accuracy: {number}"
    assert re.fullmatch(rf"{epoch} - val_loss: {number} - val_categorical_accuracy: {number}", lines[9])
    ruler = "=" * 35
    assert lines[10] == ruler and lines[16] == ruler
    for line, name in zip(
        lines[11:16],
        ("MODEL_LOAD  ", "PREPARE     ", "EXECUTE     ", "- Epoch 1     ", "- Epoch 2     "),
        strict=True,
    ):
        assert re.fullmatch(rf"{re.escape(name)} takes \d+\.\d{{4}} ms", line)
    assert lines[17] == "RSS"
    assert struct.unpack("<II", Path(outputs["ckpt"]).read_bytes()[-8:]) == (
        8,
        0,
    )  # 64 of 80 samples, 4 steps, twice
    assert ct.load(outputs["circle"]).training is None


def test_onert_train_takes_the_models_settings(
    raw: tuple[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = ct.TrainConfig(
        ct.losses.MeanSquaredError(reduction="sum"), ct.optimizers.SGD(0.5), 8, ("last", 2), metrics=["mae"]
    )
    ct.load(MNIST).with_training(config).save(tmp_path / "plus.circle")
    data = ["--load_input:raw", raw[0], "--load_expected:raw", raw[1], "--epoch", "1"]
    again = ["--export_circleplus", str(tmp_path / "again.circle"), "--learning_rate", "0.25"]
    capsys.readouterr()
    assert onert_train.main([str(tmp_path / "plus.circle"), *data, *again]) == 0
    out = capsys.readouterr().out
    assert (
        "{loss = mean squared error, reduction = sum}" in out
        and "= sgd" in out
        and "num_of_trainable_ops = 2" in out
    )
    training = ct.load(tmp_path / "again.circle").training
    assert training == config.replace(optimizer=ct.optimizers.SGD(0.25), metrics=[])


def test_onert_train_starts_from_a_checkpoint(raw: tuple[str, str], tmp_path: Path) -> None:
    data = ["--load_input:raw", raw[0], "--load_expected:raw", raw[1]]
    first, second, both = (str(tmp_path / f"{name}.ckpt") for name in ("first", "second", "both"))
    once = [*FLAGS[2:], *data, str(MNIST), "--epoch", "1", "--export_checkpoint"]
    assert onert_train.main([*once, first]) == 0
    assert onert_train.main([*once, second, "--checkpoint", first]) == 0
    assert onert_train.main([*FLAGS, *data, str(MNIST), "--export_checkpoint", both]) == 0
    assert Path(second).read_bytes() == Path(both).read_bytes()


def test_onert_train_opens_packages(
    raw: tuple[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    package = tmp_path / "package"
    (package / "metadata").mkdir(parents=True)
    (package / "metadata" / "MANIFEST").write_text(
        json.dumps({"models": ["net.circle"], "model-types": ["circle"]})
    )
    (package / "net.circle").write_bytes(MNIST.read_bytes())
    data = ["--load_input:raw", raw[0], "--load_expected:raw", raw[1]]
    assert onert_train.main([*FLAGS, *data, str(package)]) == 0
    assert f"Package Filename {package}" in capsys.readouterr().out
    (package / "metadata" / "MANIFEST").write_text("{}")
    assert onert_train.main([*FLAGS, *data, str(package)]) == 1


@pytest.mark.parametrize(
    ("arguments", "status", "message"),
    [
        (
            [str(MNIST)],
            1,
            "carries no training settings; give --loss, --optimizer, --learning_rate, --batch_size",
        ),
        ([*FLAGS, str(MNIST)], 1, "--load_input:raw and --load_expected:raw are both needed"),
        ([*FLAGS, "no.circle"], 1, "no.circle: no such file"),
        ([*FLAGS, "--num_of_trainable_ops", "99", str(MNIST)], 1, "the model has 7 operators"),
        ([*FLAGS, "--num_of_trainable_ops", "-2", str(MNIST)], 1, "-2"),
        (["--loss", "3", str(MNIST)], 2, "invalid choice"),
        ([], 2, "the following arguments are required: path"),
    ],
)
def test_onert_train_refuses(
    arguments: list[str], status: int, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    try:
        found = onert_train.main(arguments)
    except SystemExit as leaving:
        found = leaving.code
    assert found == status
    err = capsys.readouterr().err
    assert message in err and "Traceback" not in err


def test_onert_train_refuses_files_of_another_size(
    raw: tuple[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert (
        onert_train.main([*FLAGS, str(MNIST), "--load_input:raw", raw[1], "--load_expected:raw", raw[1]]) == 1
    )
    assert "has 3200 bytes, expected a multiple of 3136" in capsys.readouterr().err


def test_the_help_of_each_tool_names_onerts_flags(capsys: pytest.CaptureFixture[str]) -> None:
    flags: dict[Any, str] = {
        onert_train: "path --version --checkpoint --export_circle --export_circleplus --export_checkpoint "
        "--load_input:raw --load_expected:raw --mem_poll -m --epoch --batch_size --learning_rate --loss "
        "--loss_reduction_type --optimizer --metric --validation_split --verbose_level -v --output_sizes "
        "--num_of_trainable_ops",
        circle_plus_gen: "input hyperparameters output",
        generate_datafile: "-s --show-datasets -d --dataset-name -o --out-dir -p --prefix-name --split "
        "--length -m --model",
    }
    for module, names in flags.items():
        with pytest.raises(SystemExit) as leaving:
            module.main(["--help"])
        assert leaving.value.code == 0
        out = capsys.readouterr().out
        assert not [name for name in names.split() if name not in out]


# circle_plus_gen


def test_circle_plus_gen(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model, settings, out = (str(tmp_path / name) for name in ("m.circle", "s.json", "o.circle"))
    Path(model).write_bytes(MNIST.read_bytes())
    parameters = {
        "optimizer": {"type": "sgd", "args": {"learningRate": 0.25}},
        "loss": {"type": "cce", "args": {"fromLogits": False, "reduction": "sum"}, "reduction": "sum"},
        "batchSize": 64,
        "fineTuning": 3,
    }
    Path(settings).write_text(json.dumps(parameters))
    assert circle_plus_gen.main([model]) == 0
    assert capsys.readouterr().out == "No hyperparameters\n"
    assert circle_plus_gen.main([model, settings, out]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "succesfully add hyperparameters to the circle file" and lines[-1] == f"saved in {out}"
    assert Path(model).read_bytes() == MNIST.read_bytes()
    assert circle_plus_gen.main([out]) == 0
    printed = json.loads(capsys.readouterr().out)
    parameters["loss"]["type"] = "categorical crossentropy"  # type: ignore[index]
    assert printed == parameters
    assert circle_plus_gen.main([model, settings]) == 0
    assert Path(model).read_bytes() == Path(out).read_bytes()
    Path(settings).write_text("{")
    capsys.readouterr()
    assert circle_plus_gen.main([model, settings]) == 1
    assert "is not valid" in capsys.readouterr().err


# generate_datafile


def test_generate_datafile(family: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "out"
    command = ["-d", "mnist", "-o", str(out), "-p", "m", "--data-dir", str(family), "--length", "30", "10"]
    assert generate_datafile.main(command) == 0
    assert "The data files are created!" in capsys.readouterr().out
    names = {f"m.{split}.{count}.bin" for split in ("train.input", "train.output") for count in (30,)}
    names |= {"m.test.input.10.bin", "m.test.output.10.bin"}
    assert {path.name for path in out.iterdir()} == names
    images = np.fromfile(out / "m.train.input.30.bin", "<f4").reshape(30, 28, 28)
    labels = np.fromfile(out / "m.train.output.30.bin", "<f4").reshape(30, 10)
    assert np.array_equal(labels, np.eye(10, dtype=np.float32)[np.arange(30) % 10])
    assert images.max() == 1 and all((images[k, 2 * (k % 10)] == 1).all() for k in range(30))
    for arguments, message in (
        (["--length", "200", "10"], "has 96 samples, 200 are asked for"),
        (["-d", "cats"], "'cats' is unknown"),
        (["-m", "mobilenetv2"], "does not fit model mobilenetv2"),
        (["--split", "train", "validation"], "'validation' is unknown"),
        (["--data-dir", str(tmp_path / "nowhere")], "is not there"),
    ):
        assert generate_datafile.main([*command, *arguments]) == 1
        assert message in capsys.readouterr().err
    with pytest.raises(SystemExit):
        generate_datafile.main(["--length", "1"])
    assert generate_datafile.main(["-s"]) == 0
    assert "fashion_mnist" in capsys.readouterr().out


@pytest.mark.parametrize("name", ["onert_train", "circle_plus_gen", "generate_datafile"])
def test_scripts_are_the_installed_commands(name: str) -> None:
    project = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    found = re.search(rf'^{name} = "([\w.]+):main"$', project, re.MULTILINE)
    assert found and callable(importlib.import_module(found[1]).main)
    done = subprocess.run(
        [sys.executable, ROOT / "tools" / f"{name}.py", "-h"], capture_output=True, text=True, check=True
    )
    assert done.stdout.startswith(f"usage: {name} ")


@pytest.mark.skipif(sys.version_info < (3, 11), reason="reads no TOML")
@pytest.mark.parametrize("part", ["a", "'a b'", '"="'])
def test_a_key_without_end_is_refused(part: str, tmp_path: Path) -> None:
    """100 kB of one took Python's reader minutes."""
    (tmp_path / "s.toml").write_text(" . ".join([part] * 30_000) + " = 1")
    with pytest.raises(ct.ConfigError, match="a key of more than 100 parts"):
        read_settings(str(tmp_path / "s.toml"))
    (tmp_path / "s.toml").write_text(f"loss = 'mse'\nloss_weights = [{', '.join(['0.5'] * 200)}]")
    assert len(read_settings(str(tmp_path / "s.toml")).loss_weights) == 200
