"""What ONNX Runtime's training answered with crashes, garbage or riddles: a clear error here, or the right result.

After every refused call the weights are those before it.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import circle_train as ct

onnx = pytest.importorskip("onnx")
DATA = Path(__file__).parents[1] / "data" / "ort"
X = np.random.default_rng(0).normal(size=(4, 6)).astype(np.float32)
Y = np.array([0, 1, 2, 0])
LOSS = ct.losses.SparseCategoricalCrossentropy(from_logits=True)
Change = Callable[[ct.TrainSession], Any]


def session(loss: Any = LOSS, **changes: Any) -> ct.TrainSession:
    settings = {"loss": loss, "optimizer": ct.optimizers.SGD(0.1), "batch_size": 4} | changes
    return ct.TrainSession(DATA / "mlp.onnx", ct.TrainConfig(**settings))


def with_one(value: float) -> np.ndarray[Any, Any]:
    changed = X.copy()
    changed[1, 2] = value
    return changed


class Awkward:
    """As a PyTorch tensor that requires a gradient."""

    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        raise RuntimeError("Can't call numpy() on Tensor that requires grad.")


REFUSED: dict[str, tuple[Change, type[Exception], str]] = {
    "wrong last dimension": (lambda s: s.train_step(X[:, :5], Y), ct.DataError, "'x'.*5.*6"),
    "wrong rank": (lambda s: s.train_step(X[0], Y), ct.DataError, "'x'"),
    "x and y of different length": (lambda s: s.train_step(X, Y[:3]), ct.DataError, "3.*4|4.*3"),
    "missing input": (lambda s: s.train_step([], Y), ct.DataError, "x"),
    "extra input": (lambda s: s.train_step([X, X], Y), ct.DataError, "2.*1|1.*2"),
    "NaN input": (lambda s: s.train_step(with_one(np.nan), Y), ct.DataError, "x holds NaN"),
    "infinite input": (lambda s: s.train_step(with_one(np.inf), Y), ct.DataError, "infinite"),
    "empty batch": (lambda s: s.train_step(X[:0], Y[:0]), ct.DataError, "empty|0"),
    "label 7 of 3": (lambda s: s.train_step(X, np.array([0, 1, 7, 2])), ct.DataError, "label 7 at position 2.*0 … 2"),
    "label -100": (lambda s: s.train_step(X, np.array([-100, 1, 0, 2])), ct.DataError, "label -100"),
    "label -1": (lambda s: s.train_step(X, np.array([-1, 1, 0, 2])), ct.DataError, "label -1"),
    "label 1e9": (lambda s: s.train_step(X, np.array([10**9, 1, 0, 2])), ct.DataError, "label 1000000000"),
    "a tensor with a gradient": (lambda s: s.train_step(Awkward(), Y), ct.DataError, "x cannot be read.*requires grad; give"),
    "strings": (lambda s: s.train_step(np.array([["a"] * 6] * 4), Y), ct.DataError, "x"),
    "truncated checkpoint": (lambda s: s.load_checkpoint(cut("checkpoint_sgd")), ct.CheckpointError, "checkpoint"),
    "another file": (lambda s: s.load_checkpoint(DATA / "mlp.onnx"), ct.CheckpointError, "suffix is '.onnx'"),
    "missing checkpoint": (lambda s: s.load_checkpoint("/nowhere/checkpoint"), ct.CheckpointError, "/nowhere/checkpoint"),
    "AdamW's state for SGD": (lambda s: s.load_checkpoint(DATA / "checkpoint_adamw"), ct.CheckpointError, "AdamW"),
    "unknown output": (lambda s: s.export("/tmp/x.circle", outputs=["nope"]), ct.ConfigError, "no tensor 'nope'"),
    "unknown parameter": (lambda s: s.parameters.__setitem__("nope", X), ct.DataError, "no parameter 'nope'"),
    "parameter of another shape": (lambda s: s.parameters.__setitem__("fc1.bias", X), ct.DataError, "'fc1.bias'"),
    "flat vector too short": (lambda s: s.parameters.set_flat(X), ct.DataError, "set_flat"),
    "a list as a property": (lambda s: s.properties.__setitem__("a", [1]), ct.DataError, "property 'a'"),
    "negative learning rate": (lambda s: setattr(s, "learning_rate", -1.0), ct.ConfigError, "-1"),
    "learning rate as a word": (lambda s: setattr(s, "learning_rate", "fast"), ct.ConfigError, "'fast'"),
    "learning rate NaN": (lambda s: setattr(s, "learning_rate", float("nan")), ct.ConfigError, "nan"),
}  # fmt: skip


def cut(name: str) -> Path:
    path = Path("checkpoint_cut")
    path.write_bytes((DATA / name).read_bytes()[:-40])
    return path


@pytest.mark.parametrize("case", REFUSED)
def test_refused_and_nothing_changed(case: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    call, error, message = REFUSED[case]
    made = session()
    made.train_step(X, Y)
    before = made.parameters.flat(trainable_only=False).copy()
    state = (made.state.step, made.learning_rate)
    with pytest.raises(error, match=message):
        call(made)
    np.testing.assert_array_equal(made.parameters.flat(trainable_only=False), before)
    assert (made.state.step, made.learning_rate) == state
    assert np.isfinite(made.train_step(X, Y).loss)


def test_gradients_are_zeros_before_the_first() -> None:
    made = session()
    assert all(not gradient.any() for gradient in made.gradients.values())
    assert list(made.gradients) == list(made.parameters.trainable())


def test_numbers_of_numpy_are_properties_too() -> None:
    made = session()
    made.properties["round"], made.properties["share"] = np.int64(3), np.float32(0.5)
    assert dict(made.properties) == {"round": 3, "share": 0.5}
    assert session(batch_size=np.int64(4)).config.batch_size == 4
    with pytest.raises(ct.DataError, match="property 'flag'"):
        made.properties["flag"] = np.True_  # type: ignore[assignment]


def test_parameters_show_their_shapes() -> None:
    assert "'fc1.bias': 5" in repr(session().parameters)


RIGHT: dict[str, Change] = {
    "float64 input": lambda s: s.train_step(X.astype(np.float64), Y),
    "a list of lists": lambda s: s.train_step(X.tolist(), Y.tolist()),
    "int32 labels": lambda s: s.train_step(X, Y.astype(np.int32)),
    "Fortran order": lambda s: s.train_step(np.asfortranarray(X), Y),
    "labels of int8": lambda s: s.train_step(X, Y.astype(np.int8)),
}


@pytest.mark.parametrize("case", RIGHT)
def test_accepted_with_the_same_result(case: str) -> None:
    assert RIGHT[case](session()).loss == session().train_step(X, Y).loss


def test_evaluation_needs_no_model_of_its_own() -> None:
    made = session()
    assert made.eval_step(X, Y).loss == session().train_step(X, Y).loss
    assert made.eval_step(X).outputs[0].shape == (4, 3)


def test_parameters_can_be_set_before_anything_else() -> None:
    made = session()
    made.parameters["fc1.bias"] = np.ones(5)
    assert made.parameters["fc1.bias"].tolist() == [1.0] * 5
    assert "fc1.bias" in repr(dict(made.parameters))


def test_ignored_labels_only_where_asked() -> None:
    ignoring = ct.losses.SparseCategoricalCrossentropy(from_logits=True, ignore_index=-100)
    partly = session(ignoring).train_step(X, np.array([0, 1, -100, -100])).loss
    assert partly == pytest.approx(session().eval_step(X[:2], Y[:2]).loss, abs=1e-6)


def test_all_labels_ignored_is_a_loss_of_zero() -> None:
    made = session(ct.losses.SparseCategoricalCrossentropy(from_logits=True, ignore_index=-100))
    before = made.parameters.flat().copy()
    assert made.train_step(X, np.full(4, -100)).loss == 0
    np.testing.assert_array_equal(made.parameters.flat(), before)


@pytest.mark.parametrize(
    ("logit", "target", "expected"), [(18, 1, np.log1p(np.exp(-18))), (20, 0, 20), (-90, 1, 90)]
)
def test_binary_crossentropy_stays_finite(logit: float, target: float, expected: float) -> None:
    made = session(ct.losses.BinaryCrossentropy(from_logits=True))
    for name, value in made.parameters.items():
        made.parameters[name] = np.full_like(value, logit) if name == "fc2.bias" else np.zeros_like(value)
    loss = made.train_step(X, np.full((4, 3), target, np.float32)).loss
    assert loss == pytest.approx(expected, rel=1e-5)
    assert np.isfinite(made.parameters.flat()).all()


def test_unreduced_losses() -> None:
    values = (
        session(ct.losses.SparseCategoricalCrossentropy(from_logits=True, reduction="none"))
        .eval_step(X, Y)
        .loss
    )
    assert values.shape == (4,)
    assert values.mean() == pytest.approx(session().eval_step(X, Y).loss, rel=1e-6)


def one_node(
    tmp_path: Path, op: str, shape: list[Any], outputs: int = 1, conv: Any = None, **attributes: Any
) -> Path:
    """A convolution, the operator, and the mean over what it gives: a model whose convolution is trained."""
    from onnx import TensorProto, helper, numpy_helper

    rng = np.random.default_rng(3)
    names = ["p", *(f"p{i}" for i in range(1, outputs))]
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["c"], **(conv or {"pads": [1, 1, 1, 1]})),
        helper.make_node(op, ["c"], names, **attributes),
        helper.make_node("GlobalAveragePool", ["p"], ["g"]),
        helper.make_node("Flatten", ["g"], ["y"]),
    ]
    weights = [numpy_helper.from_array(rng.normal(size=(4, 2, 3, 3)).astype(np.float32), "w")]
    info = helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)
    result = helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", None])
    graph = helper.make_graph(nodes, "g", [info], [result], weights)
    path = tmp_path / "one.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8), path)
    return path


@pytest.mark.parametrize(
    ("op", "shape", "outputs", "attributes"),
    [
        ("AveragePool", ["n", 2, 8, 8], 1, {"kernel_shape": [2, 2], "strides": [2, 2]}),
        ("MaxPool", ["n", 2, 8, 8], 1, {"kernel_shape": [2, 2], "strides": [2, 2]}),
        ("HardSwish", ["n", 2, 8, 8], 1, {}),
        ("HardSigmoid", ["n", 2, 8, 8], 1, {}),
        ("Softplus", ["n", 2, 8, 8], 1, {}),
        ("Split", ["n", 2, 8, 8], 2, {"axis": 1}),
        ("Relu", ["n", 2, 8, 8], 1, {"conv": {"auto_pad": "SAME_UPPER", "strides": [2, 2]}}),
        ("Relu", ["n", 2, 8, 8], 1, {"conv": {"auto_pad": "SAME_LOWER"}}),
    ],
)
def test_what_crashed_or_was_refused_trains(
    tmp_path: Path, op: str, shape: list[Any], outputs: int, attributes: dict[str, Any]
) -> None:
    """Symbolic batches under pools, unused outputs of Split, SAME padding, activations, by finite differences."""
    if op == "HardSwish":
        pytest.importorskip("onnx", minversion="1.9")
    path = one_node(tmp_path, op, shape, outputs, **attributes)
    if op == "HardSwish":
        model = onnx.load(path)
        model.opset_import[0].version = 14
        onnx.save(model, path)
    x = np.random.default_rng(5).normal(size=(3, 2, 8, 8)).astype(np.float32)
    config = ct.TrainConfig(loss="mse", optimizer=ct.optimizers.SGD(1e-3), batch_size=3)
    made = ct.TrainSession(path, config)
    y = np.zeros_like(made.predict(x)) + 0.3
    made.train_step(x, y, update=False, accumulate=True)
    gradient, weight = made.gradients["w"], made.parameters["w"].copy()
    direction = np.random.default_rng(6).normal(size=weight.shape).astype(np.float32)
    losses = []
    for sign in (1, -1):
        made.parameters["w"] = weight + sign * 1e-3 * direction
        losses.append(float(made.eval_step(x, y).loss))
    expected = (losses[0] - losses[1]) / 2e-3
    assert float((gradient * direction).sum()) == pytest.approx(expected, rel=2e-2, abs=1e-4)


def test_every_unsupported_operator_is_named_at_once(tmp_path: Path) -> None:
    from onnx import TensorProto, helper

    nodes = [helper.make_node("ImageDecoder", ["x"], ["a"]), helper.make_node("Strange", ["x"], ["b"])]
    info = helper.make_tensor_value_info("x", TensorProto.FLOAT, [3, 3])
    results = [helper.make_tensor_value_info("a", TensorProto.FLOAT, [])]
    results += [helper.make_tensor_value_info("b", TensorProto.INT64, [2, None])]
    path = tmp_path / "bad.onnx"
    graph = helper.make_graph(nodes, "g", [info], results)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=8), path)
    with pytest.raises(ct.ConversionError) as caught:
        ct.TrainSession(path, ct.TrainConfig(loss="mse"))
    assert "ImageDecoder" in str(caught.value) and "Strange" in str(caught.value)
