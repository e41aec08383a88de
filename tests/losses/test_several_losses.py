"""Losses of several outputs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from test_losses import random

import circle_train as ct
from circle_train.errors import DataError
from circle_train.format import read, write
from circle_train.losses import (
    MeanAbsoluteError,
    custom,
)


def model_of_two_outputs() -> bytes:
    """The small model, its logits an output too."""
    module = read((Path(__file__).parents[1] / "data" / "mlp.circle").read_bytes())
    (softmax,) = [node for node in module.main.nodes if node.op.name == "SOFTMAX"]
    logits = softmax.inputs[0]
    assert logits is not None
    module.main.outputs.append(logits)
    return write(module)


def batch() -> tuple[Any, Any]:
    return random(5, 6).astype(np.float32), np.eye(5, dtype=np.float32)


def one_step(loss: Any, y: Any, **settings: Any) -> tuple[float, Any]:
    """Loss and the parameters after a step on the model of two outputs."""
    config = ct.TrainConfig(loss, ct.optimizers.SGD(0.1), batch_size=5, **settings)
    session = ct.TrainSession(model_of_two_outputs(), config)
    result = session.train_step(batch()[0], y)
    return result.loss, session.parameters.flat()


def test_losses_of_several_outputs_add_up_by_weight() -> None:
    y = batch()[1]
    both, _ = one_step(["categorical_crossentropy", "mse"], [y, y])
    first, _ = one_step(["categorical_crossentropy", "unused"], y)
    second, _ = one_step(["unused", "mse"], [y])
    assert both == pytest.approx(first + second)
    weighted, _ = one_step(["categorical_crossentropy", "mse"], [y, y], loss_weights=[0.25, 2.0])
    assert weighted == pytest.approx(0.25 * first + 2 * second)


def test_an_output_without_a_loss_trains_nothing_and_wants_no_labels() -> None:
    x, y = batch()
    loss, weights = one_step(["categorical_crossentropy", "unused"], y)
    alone = ct.TrainSession(
        Path(__file__).parents[1] / "data" / "mlp.circle",
        ct.TrainConfig("categorical_crossentropy", ct.optimizers.SGD(0.1), batch_size=5),
    )
    assert alone.train_step(x, y).loss == loss
    np.testing.assert_allclose(alone.parameters.flat(), weights, atol=1e-7)


def test_a_joint_loss_sees_all_outputs_and_targets() -> None:
    def formula(outputs: Any, targets: Any) -> Any:
        probabilities, logits = outputs
        return (probabilities - targets[0]).square().mean() + 0.5 * abs(logits - targets[1]).mean()

    y = batch()[1]
    joint = one_step(custom(formula, joint=True), [y, 2 * y])
    apart = one_step(["mse", 0.5 * MeanAbsoluteError()], [y, 2 * y])
    assert joint[0] == pytest.approx(apart[0])
    np.testing.assert_allclose(joint[1], apart[1], atol=1e-7)


def test_a_model_that_computes_its_own_loss_needs_no_labels() -> None:
    x, _ = batch()
    config = ct.TrainConfig(["unused", "pass_through"], ct.optimizers.SGD(0.1), batch_size=5)
    session = ct.TrainSession(model_of_two_outputs(), config)
    wanted = session.predict(x)[1].mean()
    assert session.train_step(x, None).loss == pytest.approx(wanted, rel=1e-5)
    assert session.eval_step(x, None).loss < wanted
    history = session.fit(x, epochs=2, verbose=0)
    assert history.history["loss"][1] < history.history["loss"][0]
    with pytest.raises(DataError, match="no loss takes labels"):
        session.train_step(x, x)
