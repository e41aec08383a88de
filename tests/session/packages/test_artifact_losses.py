"""Losses of every kind travel with a training package."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from test_artifacts import X, Y, config, network

import circle_train as ct

onnx = pytest.importorskip("onnx")


def test_a_loss_of_ones_own_travels_with_the_model(tmp_path: Path) -> None:
    own = ct.losses.custom(
        lambda out, y: 0.4 * (out - y).square().mean() + 0.6 * abs(out - y).mean(), name="mixed"
    )
    target = np.eye(4, dtype=np.float32)[Y]
    package = ct.make_artifacts(network(tmp_path), tmp_path / "p", config(loss=own, dropout=False))
    session, reference = (
        ct.TrainSession(package),
        ct.TrainSession(network(tmp_path), config(loss=own, dropout=False)),
    )
    for count in (6, 4):
        assert (
            session.train_step(X[:count], target[:count]).loss
            == reference.train_step(X[:count], target[:count]).loss
        )


def test_a_loss_of_all_outputs_travels_with_the_model(tmp_path: Path) -> None:
    own = ct.losses.custom(lambda out, y: (out[0] - y[0]).square().mean() * 0.5, name="joint", joint=True)
    target = np.eye(4, dtype=np.float32)[Y]
    package = ct.make_artifacts(network(tmp_path), tmp_path / "p", config(loss=own, dropout=False))
    session = ct.TrainSession(package)
    reference = ct.TrainSession(network(tmp_path), config(loss=own, dropout=False))
    for count in (6, 4):
        expected = reference.train_step(X[:count], target[:count]).loss
        assert session.train_step(X[:count], target[:count]).loss == expected


def test_a_sum_of_losses_travels_with_the_model(tmp_path: Path) -> None:
    both = 0.4 * ct.losses.MeanSquaredError() + 0.6 * ct.losses.MeanAbsoluteError()
    package = ct.make_artifacts(network(tmp_path), tmp_path / "p", config(loss=both))
    assert ct.TrainSession(package).config.loss == both


class Doubled(ct.losses.Loss):
    """A user's own class, defined by its call."""

    def __call__(self, output: Any, target: Any) -> Any:
        return ((output - target) ** 2)[:, 1:].mean() * 2


def test_a_class_of_ones_own_travels_with_the_model(tmp_path: Path) -> None:
    target = np.eye(4, dtype=np.float32)[Y]
    package = ct.make_artifacts(network(tmp_path), tmp_path / "p", config(loss=Doubled(), dropout=False))
    session = ct.TrainSession(package)
    reference = ct.TrainSession(network(tmp_path), config(loss=Doubled(), dropout=False))
    for count in (6, 4):
        expected = reference.train_step(X[:count], target[:count]).loss
        assert session.train_step(X[:count], target[:count]).loss == expected


def test_a_formula_of_the_batch_size_is_not_put_into_a_file(tmp_path: Path) -> None:
    own = ct.losses.custom(lambda out, y: (out - y).square().sum() / out.shape[0], name="per sample")
    with pytest.raises(ct.ConfigError, match=r"'per sample' computes with the batch size 6.*write mean\(\)"):
        ct.make_artifacts(network(tmp_path), tmp_path / "p", config(loss=own))
    joint = ct.losses.custom(lambda outs, ys: outs[0].reshape(24).square().mean(), name="flat", joint=True)
    with pytest.raises(ct.ConfigError, match="'flat' computes with the batch size 6"):
        ct.make_artifacts(network(tmp_path), tmp_path / "p", config(loss=joint))


def test_labels_are_checked_in_a_package_with_a_sum(tmp_path: Path) -> None:
    """A custom term of a sum is traced, the others stay what they are."""
    penalty = ct.losses.custom(lambda out, y: 0.01 * (out**2).mean(), sparse=True)
    loss = ct.losses.SparseCategoricalCrossentropy(from_logits=True) + penalty
    session = ct.TrainSession(ct.make_artifacts(network(tmp_path), tmp_path / "p", config(loss=loss)))
    assert (
        session.train_step(X, Y).loss
        == ct.TrainSession(network(tmp_path), config(loss=loss)).train_step(X, Y).loss
    )
    with pytest.raises(ct.DataError, match="label 4 at position 0"):
        session.train_step(X, Y + 4)


@pytest.mark.parametrize("weights", [{0: 2.0, 3: 0.5}, np.array([2, 1, 1, 0.5]), [np.float32(2), 1, 1, 0.5]])
def test_class_weights_travel_in_every_form(tmp_path: Path, weights: Any) -> None:
    loss = ct.losses.SparseCategoricalCrossentropy(from_logits=True, class_weights=weights)
    session = ct.TrainSession(ct.make_artifacts(network(tmp_path), tmp_path / "p", config(loss=loss)))
    plain = ct.losses.SparseCategoricalCrossentropy(from_logits=True, class_weights=[2, 1, 1, 0.5])
    assert (
        session.train_step(X, Y).loss
        == ct.TrainSession(network(tmp_path), config(loss=plain)).train_step(X, Y).loss
    )
