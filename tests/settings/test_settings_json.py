"""Settings as people write them: ONERT's JSON and ours."""

from __future__ import annotations

import importlib.util
import json
import warnings
from dataclasses import fields
from pathlib import Path
from typing import Any

import networks
import pytest
from test_circleplus import ADAM, BEYOND_ONERT, CCE, MEANING, MSE, SGD

import circle_train as ct
from circle_train.losses.loss_graph import restore
from circle_train.settings.as_json import from_dict, to_dict
from circle_train.settings.onert_json import from_onert_json, is_onert_json, to_onert_json

ADAM_JSON: dict[str, Any] = {
    "optimizer": {
        "type": "Adam",
        "args": {"learningRate": 0.01, "beta1": 0.8, "beta_2": 0.9, "epsilon": 1e-5},
    },
    "loss": {"type": "Mean Squared Error", "args": {"reduction": "sum over batch size"}},
    "batchSize": 32,
    "fineTuning": 2,
}


def changed(**changes: Any) -> dict[str, Any]:
    return {**json.loads(json.dumps(ADAM_JSON)), **changes}


def test_both_spellings_of_arguments() -> None:
    assert is_onert_json(ADAM_JSON)
    assert from_onert_json(ADAM_JSON) == ct.TrainConfig(MSE(), ADAM(0.01, 0.8, 0.9, 1e-5), 32, ("last", 2))


@pytest.mark.parametrize(("number", "meaning"), [(0, "all"), (-1, "none"), (3, ("last", 3))])
def test_numbers_of_fine_tuning(number: int, meaning: Any) -> None:
    assert from_onert_json(changed(fineTuning=number)).trainable == meaning


def test_the_misspelling_of_onerts_own_examples_is_honoured() -> None:
    settings = changed(fineFuning=1)
    del settings["fineTuning"]
    with pytest.warns(UserWarning, match="would ignore it and train everything"):
        assert from_onert_json(settings).trainable == ("last", 1)
    with pytest.warns(UserWarning, match="contradict each other; fineTuning is taken"):
        assert from_onert_json(changed(fineFuning=1)).trainable == ("last", 2)


@pytest.mark.parametrize(
    ("inner", "outer", "meaning", "warning"),
    [
        ("sum", None, "sum", "reads loss.reduction alone"),
        ("sum over batch size", "sum", "sum", "as in ONERT, 'sum' is taken"),
        ("sum", "SumOverBatchSize", "mean", "as in ONERT"),
        ("sum", "sum", "sum", None),
        (None, "sum", "sum", None),
        (None, None, "mean", None),
    ],
)
def test_both_places_of_reduction(
    inner: str | None, outer: str | None, meaning: str, warning: str | None
) -> None:
    loss: dict[str, Any] = {"type": "mse", "args": {} if inner is None else {"reduction": inner}}
    if outer is not None:
        loss["reduction"] = outer
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        config = from_onert_json(changed(loss=loss))
    assert config.loss == MSE(reduction=meaning)
    assert len(caught) == (warning is not None)
    assert all(str(warning) in str(found.message) for found in caught)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (changed(optimizer={"type": "sgd", "args": {"lr": 0.1}}), "'lr' is unknown, expected learning_rate"),
        (changed(batchsize=3), "'batchsize' is unknown.*did you mean 'batchSize'"),
        (changed(optimizer={"type": "sgd", "args": {"beta1": 0.1}}), "'beta_1' is unknown"),
        (changed(optimizer={"type": "rmsprop", "args": {}}), "optimizer 'rmsprop' is unknown"),
        (changed(loss={"type": "mae", "args": {}}), "loss 'mae' is unknown"),
        (changed(loss={"type": "mse", "args": {"reduction": "avg"}}), "reduction is 'avg'"),
        (changed(fineTuning=-2), "fineTuning is -2"),
        (changed(fineTuning="2"), "fineTuning is '2'"),
        (
            changed(optimizer={"type": "sgd", "args": {"learningRate": "0.1"}}),
            "learning_rate is '0.1', expected a number",
        ),
        ({"optimizer": ADAM_JSON["optimizer"], "loss": ADAM_JSON["loss"]}, "'batchSize' is missing"),
    ],
)
def test_mistakes_are_refused_by_name(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ct.ConfigError, match=message):
        from_onert_json(settings, "settings.json")


def test_onert_json_round_trip() -> None:
    config = ct.TrainConfig(
        CCE(reduction="sum", from_logits=True), ADAM(0.01, 0.8, 0.9, 1e-5), 16, ("last", 1)
    )
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert from_onert_json(to_onert_json(config, 3)) == config
    gap = config.replace(trainable=(0, 2))
    assert from_onert_json(to_onert_json(gap, 3)) == gap


@pytest.mark.parametrize(
    "config", [*MEANING.values(), *BEYOND_ONERT], ids=range(len(MEANING) + len(BEYOND_ONERT))
)
def test_our_json_round_trip(config: ct.TrainConfig) -> None:
    text = json.dumps(to_dict(config))
    assert from_dict(json.loads(text)) == config


def test_groups_survive_our_json() -> None:
    groups = [ct.optimizers.ParameterGroup("head/*", multiplier=10.0)]
    config = ct.TrainConfig(MSE(), SGD(0.1, groups=groups), 4)
    assert from_dict(json.loads(json.dumps(to_dict(config)))) == config


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"los": "mse"}, "'los' is unknown.*did you mean 'loss'"),
        ({"optimizer": {"type": "sgd", "lr": 0.1}}, "'lr' is unknown"),
        (
            {"optimizer": {"type": "sgd", "learning_rate": "fast"}},
            "learning_rate is 'fast', expected a number",
        ),
        ({"loss": {"reduction": "sum"}}, "expected a name or an object with a 'type'"),
        ({"trainable": "last:two"}, "expected a number behind 'last:'"),
        ({"optimizer": {"type": "sgd", "learning_rate": {"type": "magic"}}}, "'magic' is unknown"),
    ],
)
def test_our_json_refuses_by_name(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ct.ConfigError, match=message):
        from_dict(settings)


@pytest.mark.parametrize("graph", [None, [0, -1]])
def test_a_formula_that_settings_name_and_do_not_hold_is_refused(graph: Any) -> None:
    settings = {"loss": {"type": "traced", "graph": graph, "name": "mine"}}
    with pytest.raises(ct.ConfigError, match="loss 'mine' is a formula of one's own"):
        ct.TrainSession(networks.mlp(), from_dict(settings)).prepare()


@pytest.mark.parametrize("shape", [[2, -1], [2, 1.5], [2, True]])
def test_a_formula_of_impossible_shapes_is_refused(shape: list[Any]) -> None:
    graph = {"inputs": [{"type": "FLOAT32", "shape": shape}], "nodes": [], "output": 0}
    with pytest.raises(ct.ConfigError, match=r"damaged \(a shape is .* whole numbers from 0"):
        restore(graph, "settings")


def test_what_no_file_can_hold_is_refused() -> None:
    config = ct.TrainConfig(MSE(), SGD(lambda step: 0.1), 4)
    with pytest.raises(ct.ConfigError, match="no file can hold"):
        to_dict(config)


def test_the_published_schema_is_of_these_settings() -> None:
    root = Path(__file__).parents[2]
    spec = importlib.util.spec_from_file_location(
        "schema", root / "tools" / "dev" / "making" / "make_settings_schema.py"
    )
    assert spec is not None and spec.loader is not None
    made = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(made)
    published = json.loads((root / "docs" / "settings.schema.json").read_text())
    assert published == made.schema(), "run tools/dev/making/make_settings_schema.py"
    assert set(published["properties"]) == {field.name for field in fields(ct.TrainConfig)}
