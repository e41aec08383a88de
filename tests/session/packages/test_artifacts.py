"""Training packages: made from ONNX, opened where onnx cannot be imported, with or without weights."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import circle_train as ct
from circle_train.cli.main import main

onnx = pytest.importorskip("onnx")

X = np.random.default_rng(1).normal(size=(6, 3, 8, 8)).astype(np.float32)

Y = np.array([0, 1, 2, 3, 0, 1])

DEVICE = """
import sys
class Blocker:
    def find_spec(self, name, path=None, target=None):
        if name.split('.')[0] in ('onnx', 'onnxruntime', 'torch'):
            raise ModuleNotFoundError(f'{name} is not on this device', name=name)
sys.meta_path.insert(0, Blocker())
import json, numpy as np, circle_train as ct
session = ct.TrainSession(sys.argv[1])
data = np.load(sys.argv[2])
losses = [float(session.train_step(data['x'], data['y']).loss) for _ in range(4)]
session.export(sys.argv[3])
print(json.dumps({'losses': losses, 'names': list(session.parameters), 'flat': session.parameters.flat(False).tolist()}))
"""


def network(folder: Path) -> Path:
    """Convolution, batch normalisation, dropout and a dense layer, as a training export has them."""
    rng = np.random.default_rng(0)
    from onnx import TensorProto, helper, numpy_helper

    def weight(name: str, *shape: int, low: float = -0.4, high: float = 0.4) -> Any:
        return numpy_helper.from_array(rng.uniform(low, high, shape).astype(np.float32), name)

    nodes = [
        helper.make_node("Conv", ["x", "conv.weight", "conv.bias"], ["c"], pads=[1, 1, 1, 1]),
        helper.make_node(
            "BatchNormalization", ["c", "bn.weight", "bn.bias", "bn.mean", "bn.var"], ["b"], momentum=0.8
        ),
        helper.make_node("Relu", ["b"], ["r"]),
        helper.make_node("GlobalAveragePool", ["r"], ["p"]),
        helper.make_node("Flatten", ["p"], ["features"]),
        helper.make_node("Dropout", ["features", "ratio", "mode"], ["d", "mask"], seed=3),
        helper.make_node("Gemm", ["d", "fc.weight", "fc.bias"], ["scores"], transB=1),
    ]
    initializers = [
        weight("fc.weight", 4, 5), weight("fc.bias", 4), weight("conv.weight", 5, 3, 3, 3), weight("conv.bias", 5),
        weight("bn.weight", 5, low=0.5, high=1.5), weight("bn.bias", 5), weight("bn.mean", 5),
        weight("bn.var", 5, low=0.5, high=1.5),
        numpy_helper.from_array(np.float32(0.3), "ratio"), numpy_helper.from_array(np.array(True), "mode"),
    ]  # fmt: skip
    inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 3, 8, 8])]
    outputs = [helper.make_tensor_value_info("scores", TensorProto.FLOAT, ["n", 4])]
    graph = helper.make_graph(nodes, "net", inputs, outputs, initializers)
    path = folder / "net.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8), path)
    return path


def config(**changes: Any) -> ct.TrainConfig:
    loss = ct.losses.SparseCategoricalCrossentropy(from_logits=True)
    optimizer = ct.optimizers.AdamW(1e-2, style="ort", epsilon=1e-6, weight_decay=0.0)
    settings = {"loss": loss, "optimizer": optimizer, "batch_size": 6, "batch_norm": "train"} | changes
    return ct.TrainConfig(**settings)


def same_predictions(filled: ct.Model, session: ct.TrainSession) -> None:
    """To the bit in a session that could train; one that cannot has factors of channels in its weights, which rounds."""
    predicted = session.predict(X)
    np.testing.assert_array_equal(ct.TrainSession(filled, config()).predict(X), predicted)
    np.testing.assert_allclose(ct.InferenceSession(filled)(X), predicted, rtol=1e-5, atol=1e-6)


def test_a_package_trains_without_onnx(tmp_path: Path) -> None:
    """The same losses, names, flat vector and exported model as where the package was made."""
    path = network(tmp_path)
    package = ct.make_artifacts(path, tmp_path / "package", config())
    np.savez(tmp_path / "data.npz", x=X, y=Y)
    arguments = [str(package), str(tmp_path / "data.npz"), str(tmp_path / "device.circle")]
    done = subprocess.run(
        [sys.executable, "-c", DEVICE, *arguments], capture_output=True, text=True, check=False, cwd=tmp_path
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    here = ct.TrainSession(path, config())
    assert found["losses"] == [float(here.train_step(X, Y).loss) for _ in range(4)]
    order = ["fc.weight", "fc.bias", "conv.weight", "conv.bias", "bn.weight", "bn.bias", "bn.mean", "bn.var"]
    assert found["names"] == order == list(here.parameters)
    np.testing.assert_array_equal(np.float32(found["flat"]), here.parameters.flat(trainable_only=False))
    here.export(tmp_path / "here.circle")
    outputs = [ct.InferenceSession(tmp_path / f"{name}.circle")(X) for name in ("here", "device")]
    np.testing.assert_array_equal(*outputs)


def test_what_is_trained_and_what_stays(tmp_path: Path) -> None:
    package = ct.make_artifacts(
        network(tmp_path), tmp_path / "p", config(trainable=["fc.*", "bn.weight"], frozen=["fc.bias"])
    )
    session = ct.TrainSession(package)
    assert list(session.parameters.trainable()) == ["fc.weight", "bn.weight"]
    before = {name: value.copy() for name, value in session.parameters.items()}
    session.train_step(X, Y)
    changed = {name for name, value in session.parameters.items() if not np.array_equal(value, before[name])}
    assert changed == {"fc.weight", "bn.weight", "bn.mean", "bn.var"}


def test_a_predicate_becomes_names(tmp_path: Path) -> None:
    package = ct.make_artifacts(
        network(tmp_path), tmp_path / "p", config(trainable=lambda name: name.startswith("fc"))
    )
    assert ct.TrainSession(package).config.trainable == ("fc.weight", "fc.bias")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"trainable": ["nope"]}, "trainable: 'nope' is no parameter"),
        ({"trainable": ["bn.mean"]}, "'bn.mean' is a running statistic"),
        ({"trainable": ["fc.bias"], "frozen": ["fc.bias"]}, "listed as trainable and as frozen"),
        ({"frozen": ["head.*"]}, "frozen: 'head.*' is no parameter"),
    ],
)
def test_wrong_lists_are_refused(tmp_path: Path, changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ct.ConfigError, match=message.replace("*", r"\*")):
        ct.make_artifacts(network(tmp_path), tmp_path / "p", config(**changes))
    assert not (tmp_path / "p").exists()


def test_a_nominal_package_waits_for_its_weights(tmp_path: Path) -> None:
    path = network(tmp_path)
    full = ct.make_artifacts(path, tmp_path / "full", config())
    nominal = ct.make_artifacts(path, tmp_path / "nominal", config(), nominal=True)
    assert (nominal / "training.circle").stat().st_size < (full / "training.circle").stat().st_size
    session, reference = ct.TrainSession(nominal), ct.TrainSession(full)
    for refused in (
        lambda: session.train_step(X, Y),
        lambda: session.predict(X),
        lambda: session.export(tmp_path / "x.circle"),
    ):
        with pytest.raises(ct.ConfigError, match="8 of 8 parameters have no value"):
            refused()
    with pytest.raises(ct.ConfigError, match="no value"):
        ct.InferenceSession(nominal)
    with pytest.raises(ct.ConfigError, match="7 of 8 parameters have no value"):
        ct.load(nominal).with_parameters({"fc.bias": np.zeros(4)})
    filled = ct.load(nominal).with_parameters(reference.parameters)
    same_predictions(filled, reference)
    session.learning_rate = 1e-2
    session.parameters.set_flat(reference.parameters.flat(trainable_only=False), trainable_only=False)
    assert session.train_step(X, Y).loss == reference.train_step(X, Y).loss
    session.export(tmp_path / "out.circle")
    same_predictions(ct.load(tmp_path / "out.circle"), reference)


def test_training_goes_on_in_the_package(tmp_path: Path) -> None:
    """A checkpoint of the session on the ONNX model belongs to the package as well."""
    path = network(tmp_path)
    session = ct.TrainSession(path, config())
    session.train_step(X, Y)
    session.properties["round"] = 7
    session.properties["who"] = "server"
    session.save_checkpoint(tmp_path / "begun.safetensors")
    package = ct.make_artifacts(path, tmp_path / "p", config(), checkpoint=tmp_path / "begun.safetensors")
    resumed = ct.TrainSession(package)
    assert dict(resumed.properties) == {"round": 7, "who": "server"}
    assert resumed.state.step == 1
    assert resumed.train_step(X, Y).loss == session.train_step(X, Y).loss


def test_extra_outputs_and_evaluation_without_labels(tmp_path: Path) -> None:
    path = network(tmp_path)
    package = ct.make_artifacts(path, tmp_path / "p", config(extra_outputs=["d"], dropout=False))
    session = ct.TrainSession(package)
    result = session.eval_step(X)
    assert result.loss is None and result.extra["d"].shape == (6, 5)
    session.export(tmp_path / "features.circle", outputs=["d"])
    features = ct.InferenceSession(tmp_path / "features.circle")
    assert [t.name for t in features.model.outputs] == ["d"]
    np.testing.assert_allclose(features(X), result.extra["d"], rtol=0, atol=1e-6)
    np.testing.assert_array_equal(session.train_step(X, Y).extra["d"].shape, (6, 5))
    session.export(tmp_path / "trained.circle", outputs=["d"])
    trained, now = ct.InferenceSession(tmp_path / "trained.circle")(X), session.eval_step(X).extra["d"]
    np.testing.assert_allclose(trained, now, rtol=0, atol=1e-6)
    assert np.abs(now - result.extra["d"]).max() > 1e-4
    peer = pytest.importorskip("onnxruntime")
    source = ct.TrainSession(path, config())
    source.export(tmp_path / "features.onnx", outputs=["p", "features"])
    onnx.checker.check_model(tmp_path / "features.onnx")
    left = {i.name for i in onnx.load(tmp_path / "features.onnx").graph.initializer}
    assert not left & {"fc.weight", "fc.bias", "ratio"} and "bn.mean" in left
    runner = peer.InferenceSession(str(tmp_path / "features.onnx"), providers=["CPUExecutionProvider"])
    pooled, found = runner.run(None, {"x": X})
    assert pooled.shape == (6, 5, 1, 1)
    np.testing.assert_allclose(found, result.extra["d"], rtol=0, atol=1e-6)
    with pytest.raises(ct.ConversionError, match="no node of the ONNX model makes 'nope'"):
        source.export(tmp_path / "x.onnx", outputs=["nope"])
    with pytest.raises(ct.ConfigError, match="no operator makes 'nope'"):
        ct.TrainSession(path, config(extra_outputs=["nope"])).prepare()
    with pytest.raises(ct.ConfigError, match="there is no tensor 'nope'"):
        session.export(tmp_path / "x.circle", outputs=["nope"])


def test_dropout_drops_in_training_alone(tmp_path: Path) -> None:
    path = network(tmp_path)
    still, random = (ct.TrainSession(path, config(dropout=on)) for on in (False, True))
    assert random.eval_step(X, Y).loss == still.eval_step(X, Y).loss
    assert random.train_step(X, Y).loss != still.train_step(X, Y).loss


def test_trained_values_into_an_inference_model(tmp_path: Path) -> None:
    path = network(tmp_path)
    session = ct.TrainSession(path, config())
    session.train_step(X, Y)
    filled = ct.load(path).with_parameters(session.parameters)
    same_predictions(filled, session)
    with pytest.raises(ct.DataError, match="no parameter 'nope'"):
        ct.load(path).with_parameters({"nope": X})


def test_a_model_in_memory_is_as_good_as_a_file(tmp_path: Path) -> None:
    path = network(tmp_path)
    package = ct.make_artifacts(onnx.load(path), tmp_path / "p", config())
    assert (
        ct.TrainSession(package).train_step(X, Y).loss
        == ct.TrainSession(path, config()).train_step(X, Y).loss
    )


def test_a_package_needs_a_folder(tmp_path: Path) -> None:
    path = network(tmp_path)
    with pytest.raises(
        ct.ConfigError, match=r"package folder .*net\.onnx cannot be made: .*; choose another place"
    ):
        ct.make_artifacts(path, path, config())


def test_what_a_package_cannot_hold_is_named(tmp_path: Path) -> None:
    falling = ct.optimizers.SGD(lambda step: 0.1 / (step + 1))
    with pytest.raises(ct.ConfigError, match=r"learning_rate is a function.*take one of ct\.schedules"):
        ct.make_artifacts(network(tmp_path), tmp_path / "p", config(optimizer=falling))


def test_onnx_cannot_be_written_from_a_package(tmp_path: Path) -> None:
    package = ct.make_artifacts(network(tmp_path), tmp_path / "p", config())
    with pytest.raises(ct.ConversionError, match="does not hold the ONNX model"):
        ct.TrainSession(package).export(tmp_path / "x.onnx")


def test_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = network(tmp_path)
    words = f"artifacts {path} --out {tmp_path / 'p'} --loss sparse_categorical_crossentropy --batch-size 6 --optimizer adamw"
    assert main([*words.split(), "--requires-grad", "fc.*", "--batch-norm", "train"]) == 0
    assert "2 of 8 parameters are trained" in capsys.readouterr().out
    session = ct.TrainSession(tmp_path / "p")
    assert session.config.batch_norm is ct.TrainConfig(batch_norm="train").batch_norm
    assert main([*words.split(), "--requires-grad", "nope"]) == 1
    assert "error: trainable: 'nope' is no parameter" in capsys.readouterr().err


def test_parameters_are_named_on_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = network(tmp_path)
    words = f"artifacts {path} --out {tmp_path / 'p'} --loss sparse_categorical_crossentropy --batch-size 6"
    assert main([*words.split(), "--trainable", "fc.*,bn.weight"]) == 0
    assert set(ct.TrainSession(tmp_path / "p").parameters.trainable()) == {
        "fc.weight",
        "fc.bias",
        "bn.weight",
    }
    assert main([*words.split(), "--trainable", "everything"]) == 1
    assert "'everything' is no parameter, nor a pattern of one" in capsys.readouterr().err
