"""Circle+: what ONERT's record says, what we write beside it."""

from __future__ import annotations

import warnings
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onert_files import FOLDER

import circle_train as ct
from circle_train.format.flatbuffer.unknown import Unknown
from circle_train.format.metadata.training_info import RECORD, SETTINGS, attach, read_record
from circle_train.settings.onert_json import to_onert_json

PLUS = FOLDER / "circleplus"
MSE, CCE = ct.losses.MeanSquaredError, ct.losses.CategoricalCrossentropy
SGD, ADAM = ct.optimizers.SGD, ct.optimizers.Adam

MEANING = {
    "sgd_cce_mean_all": ct.TrainConfig(CCE(), SGD(0.05), 4, "all"),
    "adam_mse_sum_last2": ct.TrainConfig(MSE(reduction="sum"), ADAM(0.01), 4, ("last", 2)),
    "adam_nonstandard_betas": ct.TrainConfig(MSE(), ADAM(0.01, 0.5, 0.6, 0.3), 4, "all"),
    "epochs7_version3": ct.TrainConfig(MSE(), SGD(0.05), 4, "all", epochs=7),
    "scce": ct.TrainConfig(ct.losses.SparseCategoricalCrossentropy(), SGD(0.05), 4, "all"),
    "trainable_ops_noncontiguous_0_2": ct.TrainConfig(MSE(), SGD(0.05), 4, (0, 2)),
    "trainable_ops_null": ct.TrainConfig(MSE(), SGD(0.05), 4, "none"),
}
REFUSED = {
    "BAD_batch_0": "batch_size is 0",
    "BAD_garbage_buffer": "identifier",
    "BAD_lossfn_enum_7": "lossfn is 7",
    "BAD_lr_0": "learning_rate is 0",
    "BAD_no_optimizer_opt": "options of kind 0, expected 1",
}


def mlp() -> ct.Model:
    return ct.load(FOLDER / "mlp_softmax.circle")


def rewritten(model: ct.Model, path: Path) -> ct.Model:
    model.save(path)
    return ct.load(path)


def test_every_file_is_covered() -> None:
    assert {path.stem for path in PLUS.glob("*.circle")} == set(MEANING) | set(REFUSED)


@pytest.mark.parametrize("name", sorted(MEANING))
def test_every_field_is_honoured(name: str) -> None:
    assert ct.load(PLUS / f"{name}.circle").training == MEANING[name]


@pytest.mark.parametrize("name", sorted(REFUSED))
def test_damaged_settings_are_refused_but_the_model_loads(name: str) -> None:
    model = ct.load(PLUS / f"{name}.circle")
    x = np.zeros(model.inputs[0].shape, np.float32)
    assert ct.InferenceSession(model)(x).shape == tuple(model.outputs[0].shape)
    with pytest.raises(ct.ModelError, match=REFUSED[name]) as caught:
        _ = model.training
    assert "CIRCLE_TRAINING" in str(caught.value) and "\n" not in str(caught.value)


@pytest.mark.parametrize("suffix", ["circle", "tflite"])
@pytest.mark.parametrize("name", sorted(MEANING))
def test_settings_survive_a_file(name: str, suffix: str, tmp_path: Path) -> None:
    written = rewritten(mlp().with_training(MEANING[name]), tmp_path / f"m.{suffix}")
    assert written.training == MEANING[name]
    assert [entry.name for entry in written.module.metadata].count(RECORD) == 1


BEYOND_ONERT = [
    ct.TrainConfig(MSE(), SGD(0.1, momentum=0.9, nesterov=True, weight_decay=1e-4), 8),
    ct.TrainConfig(CCE(label_smoothing=0.1), ct.optimizers.AdamW(1e-3, weight_decay=0.02, style="ort"), 8),
    ct.TrainConfig("huber", "adam", 8, (1,)),
    ct.TrainConfig(MSE(), "adamw", 8),
    ct.TrainConfig(MSE(), SGD(0.1, momentum=0.9), 8),
    ct.TrainConfig(MSE(), SGD(0.1, weight_decay=0.1), 8),
    ct.TrainConfig(MSE(), ADAM(0.1, clip_value=1.0), 8),
    ct.TrainConfig(MSE(reduction="none"), ADAM(0.1), 8),
    ct.TrainConfig(MSE(reduction="sum_elements"), ADAM(0.1), 8),
    ct.TrainConfig(CCE(label_smoothing=0.1), ADAM(0.1), 8),
    ct.TrainConfig(MSE(), SGD(ct.schedules.Cosine(0.1, total_steps=100, warmup_steps=5), clip_norm=1.0), 8),
]


@pytest.mark.parametrize("config", BEYOND_ONERT, ids=range(len(BEYOND_ONERT)))
def test_what_onert_cannot_hold_survives(config: ct.TrainConfig, tmp_path: Path) -> None:
    written = rewritten(mlp().with_training(config), tmp_path / "m.circle")
    assert written.training == config
    assert all(entry.name != RECORD for entry in written.module.metadata), "ONERT would train by another rule"


@pytest.mark.parametrize("config", BEYOND_ONERT, ids=range(len(BEYOND_ONERT)))
def test_what_onert_cannot_hold_is_not_printed_as_its_json(config: ct.TrainConfig) -> None:
    with pytest.raises(
        ct.ConfigError, match=r"ONERT's settings have no \w+.*; print the settings in our own JSON"
    ):
        to_onert_json(config, 3)


def test_every_setting_survives(tmp_path: Path) -> None:
    """Each away from its default, so that a new one cannot be forgotten."""
    config = ct.TrainConfig(
        CCE(), SGD(0.1), 4, ("last", 2), frozen=["*/b"], metrics=["categorical_accuracy"], loss_weights=[2.0],
        epochs=3, batch_norm="train", dropout=False, memory_budget="150MB", activations="bfloat16", quantize=ct.Int8(epochs=2),
        extra_outputs=["logits"], outputs=["logits"],
    )  # fmt: skip
    plain = ct.TrainConfig(MSE(), "adam")
    left = [
        field.name for field in fields(config) if getattr(config, field.name) == getattr(plain, field.name)
    ]
    assert not left, f"give {left} another value here"
    training = rewritten(mlp().with_training(config), tmp_path / "m.circle").training
    assert training is not None
    for field in fields(config):
        if field.name != "metrics":
            assert getattr(training, field.name) == getattr(config, field.name), field.name


def test_metrics_survive(tmp_path: Path) -> None:
    config = ct.TrainConfig(CCE(), SGD(0.1), 4, metrics=["categorical_accuracy"])
    training = rewritten(mlp().with_training(config), tmp_path / "m.circle").training
    assert training is not None
    assert [metric.name for metric in training.metrics] == ["categorical_accuracy"]


def test_our_entry_yields_to_a_newer_record(tmp_path: Path) -> None:
    """ONERT replaces its record and copies our entry: then the record alone counts."""
    model = mlp().with_training(BEYOND_ONERT[0])
    foreign = read_record(ct.load(PLUS / "adam_nonstandard_betas.circle").module)
    assert foreign is not None
    alone = attach(model.module, foreign, None)
    newer = ct.Model(
        type(alone)(**{**_fields(alone), "metadata": [*alone.metadata, _entry(model, SETTINGS)]})
    )
    assert newer.training == MEANING["adam_nonstandard_betas"]


def _fields(module: Any) -> dict[str, Any]:
    return {name: getattr(module, name) for name in module.__dataclass_fields__}


def _entry(model: ct.Model, name: str) -> Any:
    return next(entry for entry in model.module.metadata if entry.name == name)


def test_removal_leaves_no_trace(tmp_path: Path) -> None:
    plain = mlp()
    removed = plain.with_training(BEYOND_ONERT[0]).with_training(None)
    assert removed.training is None and plain.training is None
    rewritten(removed, tmp_path / "removed.circle")
    rewritten(plain, tmp_path / "plain.circle")
    assert (tmp_path / "removed.circle").read_bytes() == (tmp_path / "plain.circle").read_bytes()


def test_version_and_unknown_fields_are_kept() -> None:
    model = ct.load(PLUS / "epochs7_version3.circle")
    record = read_record(model.with_training(MEANING["scce"]).module)
    assert record is not None and record["version"] == 3
    newer = attach(model.module, {**record, 13: Unknown(b"\x2a\0\0\0")}, None)
    kept = read_record(ct.Model(newer).with_training(MEANING["scce"]).module)
    assert (
        kept is not None and kept[13].raw[:4] == b"\x2a\0\0\0" and ct.Model(newer).training == MEANING["scce"]
    )


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"trainable_ops": np.array([0, 99], np.int32)}, "names operator 99, the model has 0 to 2"),
        ({"trainable_ops": np.array([-1, 1], np.int32)}, "names operator -1"),
        ({"optimizer": 0}, "optimizer SGD comes with options of kind 2, expected 1"),
        ({"optimizer": 5}, "optimizer is 5"),
        ({"loss_reduction_type": 2}, "loss_reduction_type is 2"),
        ({"lossfn": 1}, "lossfn 1 comes with options of kind 3, expected 2"),
        ({"batch_size": -1}, "batch_size is -1"),
        ({"optimizer_opt": {"learning_rate": float("nan")}}, "learning_rate is nan"),
    ],
)
def test_records_that_contradict_themselves_are_refused(changes: dict[str | int, Any], message: str) -> None:
    record = read_record(ct.load(PLUS / "adam_mse_sum_last2.circle").module)
    assert record is not None
    damaged = ct.Model(attach(mlp().module, {**record, **changes}, None))
    with pytest.raises(ct.ModelError, match=message):
        _ = damaged.training


def test_zero_betas_are_onerts_defaults() -> None:
    """ONERT's own export writes three zeros."""
    record = read_record(ct.load(PLUS / "adam_mse_sum_last2.circle").module)
    assert record is not None
    zeros = {**record, "optimizer_opt": {"learning_rate": 0.01}}
    assert ct.Model(attach(mlp().module, zeros, None)).training == MEANING["adam_mse_sum_last2"]


def test_from_logits_in_a_file_does_not_overrule_the_model(tmp_path: Path) -> None:
    """The model ends in SOFTMAX, so its output is not logits."""
    written = rewritten(
        mlp().with_training(ct.TrainConfig(CCE(from_logits=True), SGD(0.1), 4)), tmp_path / "m.circle"
    )
    with pytest.warns(UserWarning, match="from_logits=True, but the model ends in SOFTMAX"):
        training = written.training
    assert training is not None and training.loss == CCE()
    linear = ct.load(FOLDER / "fc_linear.circle").with_training(
        ct.TrainConfig(CCE(from_logits=True), SGD(0.1), 4)
    )
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert linear.training is not None and linear.training.loss == CCE(from_logits=True)


def test_what_the_record_says_by_saying_nothing_needs_no_second_entry() -> None:
    written = mlp().with_training(ct.TrainConfig(CCE(from_logits=False), SGD(0.1), 4))
    assert [entry.name for entry in written.module.metadata] == [RECORD]
    assert written.training == ct.TrainConfig(CCE(), SGD(0.1), 4)


def test_a_predicate_is_refused() -> None:
    config = ct.TrainConfig(MSE(), SGD(0.1), 4, trainable=lambda name: "W" in name)
    with pytest.raises(ct.ConfigError, match="give a list of names"):
        mlp().with_training(config)


ONERT_LOSSES = {
    "sgd_cce_mean_all": [1.623793601989746, 1.6058398485183716, 1.5891526937484741],
    "adam_mse_sum_last2": [2.14634108543396, 1.981697916984558, 1.8325982093811035],
    "epochs7_version3": [0.53658527135849, 0.5016520619392395, 0.4715176820755005],
    "trainable_ops_noncontiguous_0_2": [0.53658527135849, 0.5087904334068298, 0.48377490043640137],
}


@pytest.mark.parametrize("name", sorted(ONERT_LOSSES))
def test_a_session_needs_no_other_settings(name: str) -> None:
    session = ct.TrainSession(str(PLUS / f"{name}.circle"))
    x = np.random.default_rng(1).standard_normal((4, 6)).astype(np.float32)
    losses = [session.train_step(x, np.eye(4, dtype=np.float32)).loss for _ in range(3)]
    assert np.allclose(losses, ONERT_LOSSES[name], rtol=1e-5)
