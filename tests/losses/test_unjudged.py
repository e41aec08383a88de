"""Outputs of whole numbers: named when alone, left out beside others, and what is trained instead."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import circle_train as ct
from circle_train.ir import Buffer, DType, Graph, Module, Tensor, TensorType
from circle_train.ir.graph import constant
from circle_train.model import Model
from circle_train.ops import REGISTRY


def scores_and_class(*outputs: str) -> Model:
    """y = w x, the place of the largest y, in more bits, and that of the largest x."""
    graph = Graph("main", [Tensor("x", TensorType(DType.FLOAT32, (1, 3)))])
    w = constant(np.linspace(-1, 1, 12, dtype=np.float32).reshape(4, 3), "w")
    scores = graph.emit(REGISTRY["FULLY_CONNECTED"](), graph.inputs[0], w, None, name="scores")
    axis, widen = constant(np.array(1, np.int32), "axis"), REGISTRY["CAST"](DType.INT32, DType.INT64)
    best = graph.emit(REGISTRY["ARG_MAX"](), scores, axis, name="best")
    given = graph.emit(REGISTRY["ARG_MAX"](), graph.inputs[0], axis, name="given")
    made = {"scores": scores, "best": best, "wide": graph.emit(widen, best, name="wide"), "given": given}
    graph.outputs = [made[name] for name in outputs]
    constants = dict.fromkeys(t.buffer for t in graph.all_tensors() if t.buffer is not None)
    return Model(Module([graph], [Buffer(), *constants]))


@pytest.mark.parametrize("name", ["best", "wide"])
def test_a_model_of_whole_numbers_names_the_floats_before_them(name: str) -> None:
    session = ct.TrainSession(scores_and_class(name), ct.TrainConfig(loss="mse"))
    with pytest.raises(ct.ConfigError, match=rf"'{name}'.*'scores'.*outputs=\['scores'\]"):
        session.prepare()


def test_what_is_given_to_a_model_is_not_named_as_what_it_could_train() -> None:
    session = ct.TrainSession(scores_and_class("given"), ct.TrainConfig(loss="mse"))
    with pytest.raises(ct.ConfigError, match=r"^(?!.*outputs=)"):
        session.prepare()


def test_training_takes_other_tensors_for_outputs_and_exports_the_models_own(tmp_path: Path) -> None:
    model = scores_and_class("best")
    config = ct.TrainConfig(loss="mse", batch_size=2, outputs=["scores"], optimizer=ct.optimizers.SGD(0.1))
    session = ct.TrainSession(model, config)
    x, y = np.eye(3, dtype=np.float32)[:2], np.full((2, 4), 3, np.float32)
    losses = [float(session.train_step(x, y).loss) for _ in range(5)]
    assert losses == sorted(losses, reverse=True)
    session.export(tmp_path / "net.circle")
    assert [t.name for t in ct.load(tmp_path / "net.circle").outputs] == ["best"]


def test_an_output_that_is_none_is_refused() -> None:
    with pytest.raises(ct.ConfigError, match="outputs: no operator makes 'score'"):
        ct.TrainSession(scores_and_class("best"), ct.TrainConfig(loss="mse", outputs=["score"])).prepare()


def test_whole_numbers_beside_floats_take_no_part() -> None:
    config = ct.TrainConfig(loss="mse", batch_size=2)
    both = ct.TrainSession(scores_and_class("scores", "best"), config)
    alone = ct.TrainSession(scores_and_class("scores"), config)
    x, y = np.eye(3, dtype=np.float32)[:2], np.full((2, 4), 3, np.float32)
    with pytest.warns(UserWarning, match="'best'.*takes no part"):
        result = both.train_step(x, [y, np.zeros(2)])
    assert float(result.loss) == float(alone.train_step(x, y).loss)
    np.testing.assert_array_equal(both.parameters["w"], alone.parameters["w"])
    chosen = ct.TrainSession(
        scores_and_class("scores", "best"), ct.TrainConfig(loss=["mse", "mse"], batch_size=2)
    )
    with pytest.raises(ct.ConfigError, match="expected floats"):
        chosen.prepare()
