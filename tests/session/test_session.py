"""Sessions as their users see them."""

from __future__ import annotations

import pathlib

import numpy as np
import pytest
from networks import cnn, mlp, tied, two_headed

import circle_train as ct
from circle_train.errors import DataError
from circle_train.model import Model

RNG = np.random.default_rng(3)


def batch(count: int = 8, inputs: int = 6, classes: int = 4) -> tuple[np.ndarray, np.ndarray]:
    x = RNG.normal(size=(count, inputs)).astype(np.float32)
    return x, np.eye(classes, dtype=np.float32)[RNG.integers(0, classes, count)]


def session(model: Model, **settings: object) -> ct.TrainSession:
    defaults: dict = {"loss": "mse", "optimizer": ct.optimizers.SGD(learning_rate=0.1), "batch_size": 8}
    return ct.TrainSession(model, ct.TrainConfig(**{**defaults, **settings}), backend="reference")


def test_training_lowers_the_loss_and_outputs_are_real() -> None:
    x, y = batch()
    trained = session(mlp(), loss="categorical_crossentropy", metrics=["categorical_accuracy"])
    first = trained.train_step(x, y)
    for _ in range(60):
        last = trained.train_step(x, y)
    assert last.loss < 0.5 * first.loss
    accuracy = np.mean(last.outputs[0].argmax(1) == y.argmax(1))
    assert last.metrics["categorical_accuracy"] == pytest.approx(accuracy)
    assert first.outputs[0].shape == (8, 4)
    assert not np.array_equal(first.outputs[0], last.outputs[0]), "outputs of an earlier step must not change"


def test_what_is_frozen_does_not_move() -> None:
    x, y = batch()
    trained = session(mlp(), trainable=("last", 2))
    before = {name: array.copy() for name, array in trained.parameters.items()}
    trained.train_step(x, y)
    moved = {name for name, array in trained.parameters.items() if not np.array_equal(array, before[name])}
    assert moved == {"fc1/w", "fc1/b"} == set(trained.parameters.trainable())


@pytest.mark.parametrize(
    ("trainable", "expected"),
    [
        ("all", {"fc0/w", "fc0/b", "fc1/w", "fc1/b"}),
        (-1, {"fc0/w", "fc0/b", "fc1/w", "fc1/b"}),
        ("none", set()),
        (0, set()),
        (("last", 1), set()),
        (2, {"fc1/w", "fc1/b"}),
        ([0], {"fc0/w", "fc0/b"}),
        (lambda name: name.endswith("/b"), {"fc0/b", "fc1/b"}),
    ],
)
def test_every_way_to_choose(trainable: object, expected: set[str]) -> None:
    assert set(session(mlp(), trainable=trainable).parameters.trainable()) == expected


def test_frozen_operators_have_no_backward_nodes_and_no_slots() -> None:
    full = session(cnn(), optimizer="adam", batch_size=4).program
    last = session(cnn(), optimizer="adam", batch_size=4, trainable=("last", 1)).program
    assert len(last.graph.nodes) < len(full.graph.nodes)
    assert last.memory.nbytes < full.memory.nbytes
    slots = {
        t.state.owner for t in last.graph.all_tensors() if t.state is not None and t.state.kind in ("m", "v")
    }
    assert slots == {"fc/w", "fc/b"}


def test_a_shared_weight_gets_the_sum_of_its_gradients() -> None:
    """Against a finite difference of the loss with respect to one element of the tied weight and of the tied bias."""
    x, y = batch(8, 6, 6)
    model = tied()
    rate = 1.0
    trained = session(model, optimizer=ct.optimizers.SGD(learning_rate=rate))
    before = {name: array.astype(np.float64) for name, array in trained.parameters.items()}
    assert set(before) == {"w", "b0"}
    trained.train_step(x, y)
    for name, index in (("w", (2, 3)), ("b0", (4,))):
        gradient = (before[name] - trained.parameters[name])[index] / rate
        losses = []
        for sign in (1, -1):
            probe = session(model)
            value = probe.parameters[name].copy()
            value[index] += sign * 1e-2
            probe.parameters[name] = value
            losses.append(probe.eval_step(x, y).loss)
        assert gradient == pytest.approx((losses[0] - losses[1]) / 2e-2, rel=2e-2)


def test_tied_biases_agree_after_export(tmp_path: pathlib.Path) -> None:
    x, y = batch(8, 6, 6)
    trained = session(tied())
    trained.train_step(x, y)
    trained.export(tmp_path / "tied.circle")
    biases = {
        t.name: t.data
        for t in ct.load(tmp_path / "tied.circle").module.main.all_tensors()
        if t.name in ("b0", "b1")
    }
    assert len(biases) == 2
    np.testing.assert_array_equal(biases["b0"], biases["b1"])
    np.testing.assert_array_equal(biases["b0"], trained.parameters["b0"])


@pytest.mark.parametrize("suffix", [".circle", ".tflite"])
def test_an_export_predicts_as_the_session(tmp_path: pathlib.Path, suffix: str) -> None:
    x, y = RNG.normal(size=(4, 9, 9, 3)).astype(np.float32), RNG.normal(size=(4, 5)).astype(np.float32)
    trained = session(cnn(), batch_size=4)
    trained.train_step(x, y)
    path = tmp_path / f"net{suffix}"
    trained.export(path)
    np.testing.assert_allclose(ct.InferenceSession(path)(x), trained.predict(x), rtol=1e-5, atol=1e-6)
    assert path.read_bytes()[4:8] == (b"CIR0" if suffix == ".circle" else b"TFL3")


def test_predict_takes_any_number_of_samples_and_keeps_their_order() -> None:
    x, _ = batch(21)
    trained = session(mlp())
    np.testing.assert_allclose(
        trained.predict(x), np.concatenate([trained.predict(x[i : i + 1]) for i in range(21)]), atol=1e-6
    )


def test_several_outputs_with_weights() -> None:
    x = RNG.normal(size=(8, 6)).astype(np.float32)
    y = [RNG.normal(size=(8, 3)).astype(np.float32), RNG.integers(0, 2, 8)]
    losses = (ct.losses.MeanSquaredError(), ct.losses.SparseCategoricalCrossentropy())
    result = session(two_headed(), loss=losses, loss_weights=[2.0, 0.5]).train_step(x, y)
    assert result.loss == pytest.approx(2 * result.losses[0] + 0.5 * result.losses[1], rel=1e-6)
    assert [o.shape for o in result.outputs] == [(8, 3), (8, 2)]


def test_accumulated_gradients_are_summed() -> None:
    x, y = batch(8)
    settings = {"loss": ct.losses.MeanSquaredError(reduction="sum"), "batch_size": 4}
    whole, pieces = session(mlp(), **{**settings, "batch_size": 8}), session(mlp(), **settings)
    whole.train_step(x, y)
    for part in (slice(0, 4), slice(4, 8)):
        pieces.train_step(x[part], y[part], update=False, accumulate=True)
    pieces.update()
    np.testing.assert_allclose(pieces.parameters.flat(), whole.parameters.flat(), rtol=1e-5, atol=1e-7)


def test_unreduced_loss_reports_every_item_and_trains_on_their_sum() -> None:
    x, y = batch(8)
    unreduced = session(mlp(), loss=ct.losses.MeanSquaredError(reduction="none"))
    summed = session(mlp(), loss=ct.losses.MeanSquaredError(reduction="sum"))
    result = unreduced.train_step(x, y)
    assert result.loss.shape == (8,)
    assert result.loss.sum() == pytest.approx(summed.train_step(x, y).loss, rel=1e-5)
    np.testing.assert_allclose(unreduced.parameters.flat(), summed.parameters.flat(), rtol=1e-5, atol=1e-7)


def test_a_loss_that_is_no_number_changes_nothing() -> None:
    x, y = batch()
    trained = session(mlp(), optimizer="adam")
    trained.train_step(x, y)
    before = trained.parameters.flat().copy()
    x[3, 2] = np.nan
    with pytest.raises(ct.DataError, match=r"step 2.*x.*NaN"):
        trained.train_step(x, y)
    np.testing.assert_array_equal(trained.parameters.flat(), before)
    x[3, 2] = 0
    assert np.isfinite(trained.train_step(x, y).loss)


def test_a_diverging_loss_names_the_learning_rate() -> None:
    x, y = batch()
    trained = session(mlp(softmax=False), optimizer=ct.optimizers.SGD(learning_rate=1e20))
    with np.errstate(all="ignore"), pytest.raises(ct.ConfigError, match="lower the learning rate"):
        for _ in range(5):
            trained.train_step(x, y)


def test_flat_vectors_round_trip() -> None:
    one, other = session(mlp()), session(mlp(), trainable=("last", 2))
    vector = RNG.normal(size=one.parameters.flat().size).astype(np.float32)
    one.parameters.set_flat(vector)
    np.testing.assert_array_equal(one.parameters.flat(), vector)
    assert other.parameters.flat().size < vector.size
    other.parameters.set_flat(vector, trainable_only=False)
    np.testing.assert_array_equal(other.parameters.flat(trainable_only=False), vector)
    with pytest.raises(ct.DataError, match="shape"):
        other.parameters.set_flat(vector)


def test_setting_a_frozen_parameter_counts_from_the_next_step(tmp_path: pathlib.Path) -> None:
    x, y = batch()
    trained = session(mlp(), trainable=("last", 2))
    before = trained.eval_step(x, y).loss
    trained.parameters["fc0/w"] = np.zeros_like(trained.parameters["fc0/w"])
    assert trained.eval_step(x, y).loss != before
    trained.export(tmp_path / "zeroed.circle")
    reloaded = session(ct.load(tmp_path / "zeroed.circle"))
    assert not reloaded.parameters["fc0/w"].any()


def test_two_sessions_do_not_share_anything() -> None:
    x, y = batch()
    model = mlp()
    one, other = session(model), session(model)
    alone = session(mlp())
    for _ in range(3):
        one.train_step(x, y)
    np.testing.assert_array_equal(other.parameters.flat(), alone.parameters.flat())


def test_the_plan_is_what_is_allocated() -> None:
    trained = session(cnn(), batch_size=4, optimizer="adam")
    plan = trained.plan
    x, y = RNG.normal(size=(4, 9, 9, 3)).astype(np.float32), RNG.normal(size=(4, 5)).astype(np.float32)
    trained.train_step(x, y)
    slots = sum(a.nbytes for key, a in trained.state.arrays.items() if key.kind in ("m", "v", "scalars"))
    assert plan.memory["optimizer"] == slots
    assert plan.memory["trained parameters"] == sum(a.nbytes for a in trained.parameters.trainable().values())
    assert plan.memory["arena"] == trained.program.memory.nbytes
    assert "CONV_2D" in str(plan)
    assert sum(plan.parameters.values()) == trained.parameters.flat().size


def test_learning_rate_can_be_changed_at_any_time() -> None:
    x, y = batch()
    slow, fast = session(mlp()), session(mlp())
    fast.learning_rate = 0.2
    start = slow.parameters.flat().copy()
    slow.train_step(x, y)
    fast.train_step(x, y)
    np.testing.assert_allclose(
        fast.parameters.flat() - start, 2 * (slow.parameters.flat() - start), rtol=1e-3, atol=1e-6
    )
    with pytest.raises(ct.ConfigError):
        fast.learning_rate = -1


def test_inference_in_any_batch_size_and_by_name() -> None:
    x, _ = batch(5)
    infer = ct.InferenceSession(mlp(), backend="reference")
    (named,) = infer.run(["softmax"], {"x": x})
    np.testing.assert_array_equal(named, infer(x))
    assert infer(x[:1]).shape == (1, 4)
    with pytest.raises(ct.DataError, match="no output"):
        infer.run(["nothing"], {"x": x})
    with pytest.raises(ct.DataError, match="expected"):
        infer(x[:, :3])


def test_a_lazy_reset_leaves_the_gradients_readable_until_the_next() -> None:
    x, y = batch(8)
    pieces = session(mlp(), batch_size=4)
    pieces.train_step(x[:4], y[:4], update=False, accumulate=True)
    first = {name: array.copy() for name, array in pieces.gradients.items()}
    pieces.reset_gradients(lazy=True)
    for name, array in pieces.gradients.items():
        np.testing.assert_array_equal(array, first[name])
        assert array.any()
    for _ in range(2):
        pieces.train_step(x[:4], y[:4], update=False, accumulate=True)
    for name, array in pieces.gradients.items():
        np.testing.assert_allclose(array, 2 * first[name], rtol=1e-5, atol=1e-7)


def test_shapes_are_checked_anew_after_many_that_fit() -> None:
    """What was found to fit is remembered, a few shapes at a time; what does not fit is refused each time."""
    infer = ct.InferenceSession(mlp())
    for batch in (*range(1, 20), 3, 1):
        assert infer(np.zeros((batch, 6), np.float32)).shape == (batch, 4)
        for wrong in ((batch, 7), (6,), (0, 6)):
            with pytest.raises(DataError, match="has shape"):
                infer(np.zeros(wrong, np.float32))
