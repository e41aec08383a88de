"""Files made for one sample, in whose operators it cannot grow: a batch is run and trained sample by sample."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from networks import finish, make

import circle_train as ct
from circle_train.cli.main import main
from circle_train.compile.divided import parts_of
from circle_train.errors import MadeForFewer
from circle_train.ir import DType, Graph, Tensor, TensorType
from circle_train.ir.graph import constant
from circle_train.ir.node import Dropout
from circle_train.ir.tensor_type import Array
from circle_train.model import Model

FOLDER = Path(__file__).parents[1] / "data" / "litert_torch"
NETS = ("lstm", "attention")
RNG = np.random.default_rng(0)
X = RNG.normal(size=(5, 6, 8)).astype(np.float32)
Y = RNG.normal(size=(5, 8, 3)).astype(np.float32)


def golden(name: str) -> dict[str, Array]:
    with np.load(FOLDER / f"{name}.npz") as file:
        found = {key: file[key] for key in file.files}
    found["x"] = found["x"].astype(np.int32) if name == "attention" else found["x"]
    return found


def config(**settings: Any) -> ct.TrainConfig:
    given = {
        "loss": "mse",
        "batch_size": 4,
        "trainable": "all",
        "optimizer": ct.optimizers.SGD(0.1),
        **settings,
    }
    return ct.TrainConfig(**given)


def classifier(name: str, **settings: Any) -> ct.TrainSession:
    loss = ct.losses.SparseCategoricalCrossentropy(from_logits=True)
    return ct.TrainSession(FOLDER / f"{name}.tflite", config(loss=loss, **settings))


def gram(middle: str = "", ratio: float = 0.5) -> Model:
    """Products of all rows of the one sample with all others, which cannot grow; and a layer behind a frozen one."""
    random = np.random.default_rng(1)
    graph = Graph("net", [Tensor("x", TensorType(DType.FLOAT32, (1, 6, 8)))])
    rows = graph.emit(make("RESHAPE"), graph.inputs[0], constant(np.array([6, 8], np.int32), "rows"))
    if middle == "dropout":
        rows = graph.emit(make("RELU"), rows)
        assert rows.producer is not None
        rows.producer.hint = Dropout(ratio, None)
    weights = constant(random.normal(size=(8, 8)).astype(np.float32), "first")
    rows = graph.emit(make("FULLY_CONNECTED"), rows, weights, None)
    turned = graph.emit(make("TRANSPOSE"), rows, constant(np.array([1, 0], np.int32), "order"))
    products = graph.emit(make("BATCH_MATMUL"), turned, rows)
    weights = constant(random.normal(size=(3, 8)).astype(np.float32) / 9, "last")
    out = graph.emit(make("FULLY_CONNECTED"), products, weights, None)
    return finish(
        graph, graph.emit(make("RESHAPE"), out, constant(np.array([1, 8, 3], np.int32), "back"), name="y")
    )


@pytest.mark.parametrize("name", NETS)
def test_losses_and_gradients_are_those_of_torch(name: str) -> None:
    wanted = golden(name)
    session = classifier(name)
    result = session.train_step(wanted["x"], wanted["classes"], update=False, accumulate=True)
    np.testing.assert_allclose(result.outputs[0], wanted["outputs"], atol=1e-5)
    np.testing.assert_allclose(result.loss, wanted["loss"], rtol=1e-5)
    found = by_name(session, wanted)
    for key in (key.removeprefix("value:") for key in wanted if key.startswith("value:")):
        np.testing.assert_allclose(found[key], wanted[f"gradient:{key}"], atol=2e-6, rtol=1e-4, err_msg=key)


def by_name(session: ct.TrainSession, wanted: dict[str, Array]) -> dict[str, Array]:
    """Gradients by PyTorch's names: parameters are known by their values, and some that it has as one stand there as two."""
    sums, values = session.gradients, dict(session.parameters.items())

    def of(value: Array) -> Array:
        same = [
            n
            for n, v in values.items()
            if v.size == value.size and np.allclose(v.reshape(value.shape), value)
        ]
        assert same
        return np.sum([sums[n].reshape(value.shape) for n in same], axis=0)

    torch = {key.removeprefix("value:"): value for key, value in wanted.items() if key.startswith("value:")}
    found = {key: of(value) for key, value in torch.items() if not key.startswith("layer.linear1")}
    if (
        "layer.linear1.weight" in torch
    ):  # the exporter put the LayerNorm's scale and shift into the layer behind it
        weight, bias = torch["layer.linear1.weight"], torch["layer.linear1.bias"]
        scale, shift = torch["layer.norm1.weight"], torch["layer.norm1.bias"]
        joint, offset = of(weight * scale), of(bias + weight @ shift)
        found["layer.linear1.weight"] = joint * scale + np.outer(offset, shift)
        found["layer.linear1.bias"] = offset
        found["layer.norm1.weight"] += (joint * weight).sum(0)
        found["layer.norm1.bias"] += weight.T @ offset
    return found


@pytest.mark.parametrize("name", NETS)
def test_a_batch_is_its_samples_one_after_another(name: str) -> None:
    wanted = golden(name)
    x, classes = wanted["x"], wanted["classes"]
    np.testing.assert_allclose(
        ct.InferenceSession(FOLDER / f"{name}.tflite")(x), wanted["outputs"], atol=1e-5
    )
    whole, single = classifier(name), classifier(name, batch_size=1)
    for number in range(4):
        part = slice(number, number + 1)
        single.train_step(x[part], classes[part], update=False, accumulate=True)
    sums = single.gradients
    np.testing.assert_allclose(whole.predict(x), single.predict(x), rtol=1e-6)
    np.testing.assert_allclose(whole.evaluate(x, classes)["loss"], wanted["loss"], rtol=1e-5)
    before = {key: value.copy() for key, value in whole.parameters.items()}
    whole.train_step(x, classes)
    for key, value in whole.parameters.items():
        np.testing.assert_allclose(value, before[key] - 0.1 * sums[key] / 4, atol=1e-6)


def test_the_plan_says_it_once_and_the_export_keeps_its_one_sample(tmp_path: Path) -> None:
    session = classifier("lstm")
    assert str(session.plan).count("each batch is taken in 4 parts of 1: the file was made for 1") == 1
    wanted = golden("lstm")
    session.fit(np.repeat(wanted["x"], 3, 0)[:10], np.repeat(wanted["classes"], 3)[:10], epochs=2, verbose=0)
    session.export(tmp_path / "out.tflite")
    written = ct.load(tmp_path / "out.tflite")
    assert written.inputs[0].shape == (1, 5, 6)
    np.testing.assert_allclose(
        ct.InferenceSession(written)(wanted["x"]), session.predict(wanted["x"]), rtol=1e-5, atol=1e-6
    )


def test_check_says_it_too(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", str(FOLDER / "lstm.tflite"), "--batch-size", "8"]) == 0
    assert capsys.readouterr().out.count("each batch is taken in 8 parts of 1: the file was made for 1") == 1


def test_every_sample_has_its_own_dropout_and_the_next_step_another() -> None:
    session = ct.TrainSession(gram("dropout"), config(optimizer=ct.optimizers.SGD(1e-9)))
    same = np.repeat(np.abs(X[:1]), 4, 0)
    outputs = [session.train_step(same, Y[:4]).outputs[0] for _ in range(2)]
    seen = [sample.tobytes() for batch in outputs for sample in batch]
    assert len(set(seen)) == 8


@pytest.mark.parametrize("reduction", ["mean", "sum"])
def test_losses_are_formed_over_all(reduction: str) -> None:
    loss = ct.losses.MeanSquaredError(reduction=reduction)
    model = gram()
    outputs = np.concatenate([ct.InferenceSession(model)(X[i : i + 1]) for i in range(5)])
    each = np.mean((outputs - Y) ** 2, axis=(1, 2))
    session = ct.TrainSession(model, config(loss=loss))
    wanted = each[:4].mean() if reduction == "mean" else each[:4].sum()
    np.testing.assert_allclose(session.eval_step(X[:4], Y[:4]).loss, wanted, rtol=1e-5)


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        (
            {"loss": ct.losses.MeanSquaredError(reduction="none")},
            "losses are reduced in different ways, or not at all",
        ),
        ({"batch_norm": "train"}, "batch_norm is 'train', by which samples depend on each other"),
    ],
)
def test_what_would_mean_something_else_is_refused_by_name(settings: dict[str, Any], why: str) -> None:
    with pytest.raises(ct.ModelError, match=f"exported for batch size 1.*in parts of 1, because {why}"):
        ct.TrainSession(gram(), config(**settings)).prepare()


def test_what_a_frozen_beginning_gives_is_kept() -> None:
    model, fits = gram(), []
    for keep in (True, False):
        session = ct.TrainSession(
            model, config(trainable=["last"], batch_size=2, optimizer=ct.optimizers.SGD(1e-4))
        )
        session.fit(X, Y, epochs=3, verbose=0, shuffle=False, keep_frozen=keep)
        assert bool(session.kept_bytes) is keep
        fits.append(session.parameters["last"].copy())
    np.testing.assert_array_equal(*fits)


def test_a_budget_of_memory_is_kept() -> None:
    free = ct.TrainSession(gram(), config())
    tight = ct.TrainSession(gram(), config(memory_budget=free.plan.budget_bytes + 1000))
    losses = [session.train_step(X[:4], Y[:4]).loss for session in (free, tight)]
    assert tight.plan.budget_bytes <= free.plan.budget_bytes + 1000
    np.testing.assert_allclose(*losses, rtol=1e-6)


def test_a_file_made_for_no_samples_is_not_run_in_parts() -> None:
    graph = Graph("g", [Tensor("x", TensorType(DType.FLOAT32, (0, 3)))])
    refusal = MadeForFewer("for none")
    refusal.samples = 0
    with pytest.raises(MadeForFewer, match="for none"):
        parts_of(graph, 2, refusal)
