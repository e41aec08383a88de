"""Losses against PyTorch's numbers, against finite differences, and at their edges."""

from __future__ import annotations

import json
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tiny_graph import loss_and_gradient

from circle_train import losses
from circle_train.errors import ConfigError, DataError
from circle_train.ir import DType, TensorType
from circle_train.losses import (
    BinaryCrossentropy,
    CategoricalCrossentropy,
    Huber,
    Loss,
    MeanAbsoluteError,
    MeanSquaredError,
    SparseCategoricalCrossentropy,
    custom,
)
from circle_train.ops import INTERNAL

GOLDEN = json.loads((Path(__file__).parents[1] / "data" / "torch_losses.json").read_text(encoding="utf-8"))[
    "cases"
]

LOSS_OPS = [
    name
    for name, cls in INTERNAL.items()
    if cls.__module__ == "circle_train.ops.internal.loss" and not cls.stops_gradient
]


def random(*shape: int, seed: int = 0) -> Any:
    return np.random.default_rng(seed).normal(size=shape)


@pytest.mark.parametrize("case", GOLDEN, ids=[case["name"] for case in GOLDEN])
def test_value_and_gradient_are_pytorchs(case: dict[str, Any]) -> None:
    loss = losses.BY_NAME[case["loss"]](**case["settings"])
    value, gradient = loss_and_gradient(loss, np.array(case["x"]), np.array(case["target"]), case["form"])
    np.testing.assert_allclose(value, case["value"], rtol=1e-6, atol=1e-7)
    np.testing.assert_allclose(gradient, case["gradient"], rtol=1e-6, atol=1e-7)


def test_every_reduction_of_every_named_loss_has_a_golden() -> None:
    without = {"mse", "mae", "l1", "pass_through", "unused"}
    assert {case["loss"] for case in GOLDEN} == set(losses.BY_NAME) - without


@pytest.mark.parametrize("name", LOSS_OPS)
def test_gradients_of_loss_operators_are_those_of_their_values(name: str) -> None:
    for example in INTERNAL[name].examples():
        x, *rest = example.inputs
        assert x is not None
        y = example.op.forward(x, *rest)
        dy, direction = random(*y.shape, seed=1), random(*x.shape, seed=2)
        step = 1e-6
        ahead, behind = (example.op.forward(x + sign * step * direction, *rest) for sign in (1, -1))
        first = example.op.inputs[0].name
        needs = example.op.gradients[first].needs
        padded = dict(zip([spec.name for spec in example.op.inputs], example.op.pad([x, *rest]), strict=True))
        gradient = getattr(example.op, f"grad_{first}")(**{k: {"dy": dy, **padded}[k] for k in needs})
        wanted = (dy * (ahead - behind)).sum() / (2 * step)
        np.testing.assert_allclose((gradient * direction).sum(), wanted, rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("logit", [-1e4, -100.0, -30.0, 0.0, 30.0, 100.0, 1e4])
@pytest.mark.parametrize("target", [0.0, 1.0])
@pytest.mark.parametrize("form", ["", "LOGISTIC"])
def test_binary_crossentropy_is_stable_at_any_logit(logit: float, target: float, form: str) -> None:
    x = np.array([[logit]], np.float32)
    with np.errstate(all="raise", under="ignore"):
        value, gradient = loss_and_gradient(BinaryCrossentropy(), x, np.array([[target]], np.float32), form)
    wanted = np.logaddexp(0.0, -logit if target else logit)
    np.testing.assert_allclose(value, wanted, rtol=1e-6, atol=1e-30)
    np.testing.assert_allclose(gradient, 1 / (1 + np.exp(-np.clip(logit, -700, 700))) - target, atol=1e-6)


@pytest.mark.parametrize("form", ["", "SOFTMAX"])
def test_crossentropy_is_stable_at_any_logit(form: str) -> None:
    x = np.array([[1e4, -1e4, 0.0]], np.float32)
    value, gradient = loss_and_gradient(SparseCategoricalCrossentropy(), x, np.array([1], np.int32), form)
    np.testing.assert_allclose(value, 2e4)
    np.testing.assert_allclose(gradient, [[1, -1, 0]], atol=1e-6)


def test_saturated_probabilities_still_learn() -> None:
    p = np.array([[0.0, 1.0, 0.0, 1.0]])
    with pytest.warns(UserWarning, match="does not end in LOGISTIC"):
        value, gradient = loss_and_gradient(
            BinaryCrossentropy(from_logits=False), p, np.array([[1.0, 0, 0, 1]])
        )
    assert np.isfinite(value)
    assert gradient[0, 0] < -1e5
    assert gradient[0, 1] > 1e5


def test_softmax_with_a_beta_is_undone() -> None:
    x, target = random(3, 4), np.eye(4)[[0, 2, 1]]
    value, gradient = loss_and_gradient(CategoricalCrossentropy(), x, target, "SOFTMAX", beta=2.0)
    plain, plain_gradient = loss_and_gradient(CategoricalCrossentropy(), 2 * x, target)
    np.testing.assert_allclose(value, plain)
    np.testing.assert_allclose(gradient, 2 * plain_gradient)


def test_all_items_ignored_costs_nothing() -> None:
    loss = SparseCategoricalCrossentropy(ignore_index=-1)
    value, gradient = loss_and_gradient(loss, random(3, 4), np.full(3, -1, np.int32))
    assert value == 0
    assert not gradient.any()


def test_class_weights_by_class_number() -> None:
    x, target = random(5, 4), np.array([0, 1, 2, 3, 1], np.int32)
    by_list = SparseCategoricalCrossentropy(class_weights=[1, 3.0, 1, 1])
    by_class = SparseCategoricalCrossentropy(class_weights={1: 3.0})
    assert loss_and_gradient(by_list, x, target)[0] == loss_and_gradient(by_class, x, target)[0]


@pytest.mark.parametrize(
    ("from_logits", "form", "message"),
    [
        (True, "SOFTMAX", "applied a second time"),
        (False, "", "does not end in SOFTMAX"),
        (None, "SOFTMAX", None),
        (None, "", None),
        (False, "SOFTMAX", None),
        (True, "", None),
    ],
)
def test_a_setting_that_contradicts_the_graph_is_obeyed_with_a_warning(
    from_logits: bool | None, form: str, message: str | None
) -> None:
    loss, target = CategoricalCrossentropy(from_logits=from_logits), np.eye(4)[[0, 2, 1]]
    if message is None:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            loss_and_gradient(loss, abs(random(3, 4)), target, form)
    else:
        with pytest.warns(UserWarning, match=message):
            loss_and_gradient(loss, abs(random(3, 4)), target, form)


def test_losses_add_up_and_scale() -> None:
    x, target = random(3, 4), random(3, 4, seed=1)
    mse, mae, huber = (
        loss_and_gradient(kind(), x, target) for kind in (MeanSquaredError, MeanAbsoluteError, Huber)
    )
    mixed = 0.4 * MeanSquaredError() + MeanAbsoluteError() * 0.6 + Huber()
    value, gradient = loss_and_gradient(mixed, x, target)
    np.testing.assert_allclose(value, 0.4 * mse[0] + 0.6 * mae[0] + huber[0])
    np.testing.assert_allclose(gradient, 0.4 * mse[1] + 0.6 * mae[1] + huber[1])
    doubled, _ = loss_and_gradient(2 * mixed, x, target)
    np.testing.assert_allclose(doubled, 2 * value)
    with pytest.raises(ConfigError, match="the same kind of target"):
        loss_and_gradient(MeanSquaredError() + SparseCategoricalCrossentropy(), x, target)


def test_losses_subtract_divide_and_follow_sum() -> None:
    x, target = random(3, 4), random(3, 4, seed=1)
    mse, mae = (loss_and_gradient(kind(), x, target)[0] for kind in (MeanSquaredError, MeanAbsoluteError))
    for made, wanted in (
        (MeanSquaredError() - 0.5 * MeanAbsoluteError(), mse - 0.5 * mae),
        ((MeanSquaredError() + MeanAbsoluteError()) / 4, (mse + mae) / 4),
        (-MeanSquaredError(), -mse),
        (sum([MeanSquaredError(), MeanAbsoluteError()]), mse + mae),
        (custom(lambda o, t: 0.4 * MeanSquaredError() + 0.6 * MeanAbsoluteError()), 0.4 * mse + 0.6 * mae),
        (custom(lambda o, t: 2 * MeanSquaredError()(o, t) + MeanAbsoluteError()(o, t)), 2 * mse + mae),
    ):
        np.testing.assert_allclose(loss_and_gradient(made, x, target)[0], wanted)
    with pytest.raises(TypeError):
        MeanSquaredError() - 1  # type: ignore[operator]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: MeanSquaredError(reduction="average"), "reduction is 'average', expected one of 'mean'"),
        (lambda: Huber(delta=0), "delta is 0, expected a positive number"),
        (
            lambda: CategoricalCrossentropy(label_smoothing=1.0),
            r"label_smoothing is 1.0, expected in \[0, 1\)",
        ),
        (
            lambda: CategoricalCrossentropy(class_weights=[-1, 1]),
            "class_weights is .*, expected numbers from 0",
        ),
        (lambda: BinaryCrossentropy(pos_weight=-1.0), "pos_weight is -1.0, expected numbers from 0"),
        (lambda: custom(3), "made from 3, expected a function"),  # type: ignore[arg-type]
    ],
)
def test_settings_out_of_range_are_refused(make: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        make()


@pytest.mark.parametrize(
    ("loss", "shape", "message"),
    [
        (SparseCategoricalCrossentropy(class_weights=[1, 2]), (3, 4), "2 numbers for the 4 classes"),
        (SparseCategoricalCrossentropy(class_weights={7: 2.0}), (3, 4), r"names class 7, expected 0 … 3"),
        (CategoricalCrossentropy(), (4,), "has no axis of classes"),
        (
            BinaryCrossentropy(pos_weight=[1, 2, 3]),
            (3, 4),
            "pos_weight is .*expected a number, or one for each",
        ),
    ],
)
def test_settings_that_do_not_fit_the_output_are_refused(
    loss: Loss, shape: tuple[int, ...], message: str
) -> None:
    target = np.zeros(loss.target_type(TensorType(DType.FLOAT32, (3, 4))).shape, np.int32)
    with pytest.raises(ConfigError, match=message):
        loss_and_gradient(loss, random(*shape), target)


@pytest.mark.parametrize(
    ("loss", "target", "message"),
    [
        (SparseCategoricalCrossentropy(), [0, 1, 2, 7], "label 7 at position 3: expected 0 … 3$"),
        (SparseCategoricalCrossentropy(), [0, -100, 2, 1], "label -100 at position 1: expected 0 … 3$"),
        (SparseCategoricalCrossentropy(), [[0, 1], [4, 0]], r"label 4 at position \(1, 0\): expected 0 … 3$"),
        (
            SparseCategoricalCrossentropy(ignore_index=-1),
            [-1, 9],
            "label 9 at position 1: expected 0 … 3, or -1",
        ),
        (SparseCategoricalCrossentropy(ignore_index=-1), [-1, 3, 0], None),
        (SparseCategoricalCrossentropy(), [0, 3, 2], None),
        (BinaryCrossentropy(), [0.0, 2.0], "a target is 2, expected numbers from 0 to 1"),
        (BinaryCrossentropy(), [-1.0, 1.0], "a target is -1, expected numbers from 0 to 1"),
        (BinaryCrossentropy(), [0.0, 1.0, 0.3], None),
        (MeanSquaredError() + BinaryCrossentropy(), [7.0], "a target is 7"),
    ],
)
def test_labels_out_of_range_are_refused(loss: Loss, target: Any, message: str | None) -> None:
    array = np.array(target)
    array = array.astype(np.float32 if array.dtype.kind == "f" else np.int32)
    output = TensorType(DType.FLOAT32, (*array.shape, 4))
    if message is None:
        loss.check_target(array, output)
    else:
        with pytest.raises(DataError, match=message):
            loss.check_target(array, output)


def test_no_labels_are_no_wrong_labels() -> None:
    output = TensorType(DType.FLOAT32, (2, 0, 3))
    SparseCategoricalCrossentropy().check_target(np.zeros((2, 0), np.int32), output)
