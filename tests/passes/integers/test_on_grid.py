"""Training a model of integers: real numbers on the file's grids, and the same kind of file back."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from networks import finish, make, new_input, weight

import circle_train as ct
from circle_train.cli.main import main
from circle_train.format import read, write
from circle_train.ir import Buffer, Graph, Tensor
from circle_train.ops.internal.integers.on_grid import OnGrid

INT8 = Path("tests/data/int8_cnn.tflite")

RNG = np.random.default_rng(0)

Y = np.arange(24) % 3

X = (RNG.integers(-60, 60, (24, 8, 8, 3)) + 50 * (Y - 1)[:, None, None, None]).astype(np.int8)


def session(trainable: Any = "all", optimizer: Any = "adam", backend: str = "auto") -> ct.TrainSession:
    config = ct.TrainConfig(
        loss="sparse_categorical_crossentropy", optimizer=optimizer, batch_size=8, trainable=trainable
    )
    return ct.TrainSession(INT8, config, backend=backend)


def constants(path: Path) -> dict[str, Tensor]:
    return {t.name: t for t in read(path).main.all_tensors() if t.is_constant}


@pytest.mark.parametrize("backend", ["auto", "reference"])
def test_what_trains_is_what_the_integers_compute(backend: str) -> None:
    """But for halves, which a mean of integers has and a mean of reals only nearly."""
    trained = session(backend=backend)
    (found,) = trained.train_step(X[:8], Y[:8], update=False, accumulate=True).outputs
    assert found.dtype == np.float32
    apart = np.abs(np.rint(found * 256 - 128) - ct.InferenceSession(INT8)(X[:8]))
    assert apart.max() <= 2 and (apart == 0).mean() > 0.8


def test_untrained_it_is_the_same_file(tmp_path: Path) -> None:
    session("none").export(tmp_path / "same.tflite")
    assert (tmp_path / "same.tflite").read_bytes() == INT8.read_bytes()


def test_biases_beyond_what_a_float_tells_apart_stay_as_they_are(tmp_path: Path) -> None:
    """TensorFlow's converter writes them where a channel is always cut off."""
    module = read(INT8)
    (found,) = (t for t in module.main.all_tensors() if t.name == "conv:bias")
    stored = found.data.copy()
    stored[3:6] = (1 << 30) + 17, -(1 << 30) - 131, (1 << 24) + 1
    found.buffer = Buffer(stored.view(np.uint8))
    file = tmp_path / "large.tflite"
    file.write_bytes(write(module))
    trained = ct.TrainSession(file, ct.TrainConfig(loss="sparse_categorical_crossentropy", batch_size=2))
    trained.export(tmp_path / "same.tflite")
    assert (tmp_path / "same.tflite").read_bytes() == file.read_bytes()


def test_what_is_predicted_while_training_is_what_the_file_predicts(tmp_path: Path) -> None:
    """Biases lie on their grid too: by their fractions results were rounded to other integers."""
    config = ct.TrainConfig(loss="sparse_categorical_crossentropy", batch_size=16)
    trained = ct.TrainSession(INT8, config)
    for _ in range(3):
        trained.train_step(X[:16], Y[:16])
    trained.export(tmp_path / "out.tflite")
    again = ct.TrainSession(tmp_path / "out.tflite", config)
    np.testing.assert_array_equal(trained.predict(X), again.predict(X))


def test_defaults_learn_and_the_file_computes_what_was_learned(tmp_path: Path) -> None:
    trained = session()
    history = trained.fit(X, Y, epochs=12, verbose=0).history["loss"]
    assert history[-1] < 0.9 * history[0]
    trained.export(tmp_path / "trained.tflite")
    stored = np.rint(trained.predict(X) * 256 - 128)
    np.testing.assert_array_equal(stored, ct.InferenceSession(tmp_path / "trained.tflite")(X))


def test_only_the_trained_integers_change(tmp_path: Path) -> None:
    trained = session(("last", 2))
    trained.fit(X, Y, epochs=2, verbose=0)
    trained.export(tmp_path / "trained.tflite")
    before, after = constants(INT8), constants(tmp_path / "trained.tflite")
    changed = {name for name in before if not np.array_equal(before[name].data, after[name].data)}
    assert changed == {"dense", "dense:bias"}
    for name, tensor in before.items():
        assert after[name].dtype is tensor.dtype and after[name].quantization == tensor.quantization
    assert (tmp_path / "trained.tflite").stat().st_size == INT8.stat().st_size


def test_gradients_are_those_of_fake_quantize() -> None:
    """PyTorch's straight-through estimator on the last layer: the same rounding, the same cut."""
    torch = pytest.importorskip("torch")
    model = ct.load(INT8)
    trained = session(("last", 2), ct.optimizers.SGD(learning_rate=1.0))
    w, b = (np.array(trained.parameters[name]) for name in ("dense", "dense:bias"))
    known = constants(INT8)
    body = {t.name: t for t in model.module.main.all_tensors()}
    flat, logits = body["flat"].quantization, body["logits"].quantization
    x = torch.from_numpy(np.array(ct.InferenceSession(beginning(model))(X[:8])).astype(np.float32))
    x = (x - flat.zero_point[0]) * np.float32(flat.scale[0])
    tw, tb = torch.from_numpy(w).requires_grad_(), torch.from_numpy(b).requires_grad_()
    scale = torch.tensor(known["dense"].quantization.scale)
    on_grid = torch.fake_quantize_per_channel_affine(
        tw, scale, torch.zeros(3, dtype=torch.int32), 0, -128, 127
    )
    raw = torch.nn.functional.linear(x, on_grid, tb)
    y = torch.fake_quantize_per_tensor_affine(raw, logits.scale[0], logits.zero_point[0], -128, 127)
    loss = torch.nn.functional.cross_entropy(y, torch.from_numpy(Y[:8]))
    loss.backward()
    step = trained.train_step(X[:8], Y[:8])
    assert step.loss == pytest.approx(loss.item(), rel=1e-6)
    found = [np.array(trained.parameters[name]) for name in ("dense", "dense:bias")]
    np.testing.assert_allclose(w - found[0], tw.grad.numpy(), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(b - found[1], tb.grad.numpy(), rtol=1e-5, atol=1e-6)


def beginning(model: ct.Model) -> ct.Model:
    """Up to what the dense layer reads."""
    from circle_train.runtime.module import with_outputs

    return ct.Model(with_outputs(model.module, ["flat"]))


def test_integer_parameters_are_counted(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["info", str(INT8)]) == 0
    assert "331 parameters" in capsys.readouterr().out
    assert main(["check", str(INT8)]) == 0
    said = capsys.readouterr().out
    assert "trained by 'all': conv, conv:bias, depthwise, depthwise:bias, dense, dense:bias" in said
    assert sum(np.size(value) for value in session().parameters.values()) == 331


def test_check_and_info_say_what_the_plan_says(capsys: pytest.CaptureFixture[str]) -> None:
    """Of operators on integers: what has a gradient, what is kept for it, and what gradients of weights take."""
    plan = ct.TrainSession(INT8, ct.TrainConfig(loss="mse", optimizer="adam", batch_size=32)).plan
    assert main(["check", "--json", str(INT8)]) == 0
    said = json.loads(capsys.readouterr().out)
    found = {op["name"]: op["differentiable"] for op in said["operators"]}
    assert found["CONV_2D"] == found["FULLY_CONNECTED"] == ["x", "w", "b"] and found["SOFTMAX"] == ["x"]
    last = said["choices"][-1]
    assert last["parameters"] == 331
    assert (last["waiting_bytes"], last["gradient_bytes"]) == (plan.waiting_bytes, plan.gradient_bytes)
    assert last["arena_bytes"] == plan.memory["arena"]
    assert last["flops"] == pytest.approx(plan.flops, rel=0.05)  # the plan leaves out what moves the weights
    assert main(["info", "--json", str(INT8)]) == 0
    step = json.loads(capsys.readouterr().out)["step"]
    assert (step["waiting_bytes"], step["gradient_bytes"]) == (plan.waiting_bytes, plan.gradient_bytes)
    assert [op.index for op in plan.operators] == list(range(len(plan.operators)))


def test_the_plan_says_what_waits_and_what_gradients_take() -> None:
    """What waits does so as bytes; a gradient that is masked or clipped lies somewhere before its weight moves."""
    integers = session()
    floats = ct.TrainSession(ct.load(INT8).with_float_head(7), integers.config)
    assert 0 < integers.plan.waiting_bytes < 0.5 * floats.plan.waiting_bytes
    assert 0 < integers.plan.gradient_bytes < 8 * sum(integers.plan.parameters.values())
    assert "are gradients of weights" in str(integers.plan)
    assert "wait for the backward part; weights move as their gradients arise" in str(floats.plan)
    clipped = ct.optimizers.SGD(learning_rate=0.1, clip_norm=1.0)
    assert ct.TrainSession(floats.model, integers.config.replace(optimizer=clipped)).plan.gradient_bytes > 0


def test_a_checkpoint_carries_the_masters(tmp_path: Path) -> None:
    """They are finer than the grid."""
    trained = session()
    trained.fit(X, Y, epochs=1, verbose=0)
    trained.save_checkpoint(tmp_path / "c.safetensors")
    other = session()
    other.load_checkpoint(tmp_path / "c.safetensors")
    for name, value in trained.parameters.items():
        np.testing.assert_array_equal(value, other.parameters[name])


def test_settings_travel_in_the_file(tmp_path: Path) -> None:
    """Circle+: who loads it trains it as was said, and what is exported then is the same file of integers."""
    config = ct.TrainConfig(
        loss="sparse_categorical_crossentropy",
        optimizer=ct.optimizers.Adam(2e-3),
        batch_size=8,
        trainable=("last", 2),
    )
    ct.load(INT8).with_training(config).save(tmp_path / "plus.circle")
    told, loaded = ct.TrainSession(INT8, config), ct.TrainSession(tmp_path / "plus.circle")
    assert loaded.config.rule == config.rule and loaded.config.batch_size == 8
    for trained in (told, loaded):
        trained.fit(X, Y, epochs=2, verbose=0)
        trained.export(tmp_path / f"{id(trained)}.tflite")
    assert loaded.parameters.trainable().keys() == {"dense", "dense:bias"}
    files = [constants(tmp_path / f"{id(trained)}.tflite") for trained in (told, loaded)]
    for name, tensor in files[0].items():
        np.testing.assert_array_equal(tensor.data, files[1][name].data, err_msg=name)


@pytest.mark.parametrize("zero", [0.0, -128.0, 7.0])
@pytest.mark.parametrize("scale", [1 / 128, 0.0123, 3.7])
def test_between_two_floats_the_gradient_passes(scale: float, zero: float) -> None:
    """What is kept of a tensor as bits says the same as the tensor."""
    op = OnGrid(scale, zero, -128.0, 111.0)
    low, high = op.inside
    ends = np.float32([low, high])
    around = np.concatenate(
        [ends, np.nextafter(ends, np.float32(0)), np.nextafter(ends, np.float32([-9e9, 9e9]))]
    )
    x = np.concatenate([around, np.linspace(-200 * scale, 200 * scale, 999, dtype=np.float32)])
    passes = op.grad_x(np.ones_like(x), x) > 0
    np.testing.assert_array_equal(passes, (x > low) & (x < high))
    assert passes.any() and not passes.all()


@pytest.mark.parametrize("backend", ["auto", "reference"])
def test_what_waits_for_its_gradient_waits_as_bytes(backend: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is lost: losses have the same bits where all waits as floats."""
    losses = []
    for least in (1, 1 << 40):
        monkeypatch.setattr("circle_train.passes.integers.on_grid.LEAST", least)
        trained = session(backend=backend)
        losses.append([trained.train_step(X[:8], Y[:8]).loss for _ in range(4)])
        names = {tensor.name for tensor in trained.program.graph.all_tensors()}
        assert any(name.startswith("narrow(") for name in names) == (least == 1)
    assert losses[0] == losses[1]


def test_rescaled_weights_fill_their_range_again_and_the_file_computes_the_same(tmp_path: Path) -> None:
    trained = session()
    trained.fit(X, Y, epochs=4, verbose=0)
    trained.export(tmp_path / "kept.tflite")
    trained.export(tmp_path / "new.tflite", rescale=True)
    kept, new = constants(tmp_path / "kept.tflite"), constants(tmp_path / "new.tflite")
    for name, axis in (("conv", 0), ("depthwise", 3), ("dense", 0)):
        largest = np.abs(
            np.moveaxis(new[name].data, axis, 0).reshape(new[name].shape[axis], -1).astype(int)
        ).max(1)
        assert (largest == 127).all() and new[name].quantization != kept[name].quantization
        x = {"conv": 1 / 128, "depthwise": 0.02, "dense": 0.025}[name]
        np.testing.assert_allclose(
            new[f"{name}:bias"].quantization.scale,
            np.float32(x) * np.array(new[name].quantization.scale),
            rtol=1e-6,
        )
    found = [ct.InferenceSession(tmp_path / name)(X).astype(int) for name in ("kept.tflite", "new.tflite")]
    assert np.abs(found[0] - found[1]).max() <= 8


def test_rescaling_is_refused_where_nothing_is_rescaled(tmp_path: Path) -> None:
    with pytest.raises(ct.ConfigError, match="rescale: no weights of integers were trained"):
        session("none").export(tmp_path / "x.tflite", rescale=True)
    with pytest.raises(ct.ConfigError, match=r"rescale goes with a \.tflite or \.circle file"):
        session().export(tmp_path / "x.tflite", rescale=True, quantize="dynamic")
    assert not (tmp_path / "x.tflite").exists()


def test_activations_of_int16_go_through_what_only_moves_them(tmp_path: Path) -> None:
    """A file of int16x8 is trained: its untrained bytes stay, and what is predicted is what the integers compute."""
    graph = Graph("net", [new_input("x", 1, 6, 6, 3)])
    conv = graph.emit(make("CONV_2D"), graph.inputs[0], weight("w", 4, 3, 3, 3), weight("b", 4), name="conv")
    flat = graph.emit(make("RESHAPE", new_shape=(-1, 144)), conv, name="flat")
    y = graph.emit(make("FULLY_CONNECTED"), flat, weight("v", 3, 144), weight("c", 3), name="y")
    net = ct.TrainSession(finish(graph, y), ct.TrainConfig(loss="mse", batch_size=1))
    pictures = np.random.default_rng(1).normal(size=(16, 6, 6, 3)).astype(np.float32)
    net.export(
        tmp_path / "wide.tflite", quantize=ct.Int8(calibration=pictures, scheme="int16x8", io="float32")
    )
    trained = ct.TrainSession(
        tmp_path / "wide.tflite", ct.TrainConfig(loss="sparse_categorical_crossentropy")
    )
    trained.export(tmp_path / "same.tflite")
    assert (tmp_path / "same.tflite").read_bytes() == (tmp_path / "wide.tflite").read_bytes()
    losses = trained.fit(pictures, np.arange(16) % 3, epochs=6, verbose=0).history["loss"]
    assert losses[-1] < losses[0]
    trained.export(tmp_path / "out.tflite")
    found, wanted = trained.predict(pictures), ct.InferenceSession(tmp_path / "out.tflite")(pictures)
    assert np.abs(found - wanted).max() <= 3e-4 * np.abs(wanted).max()
