"""The JSON of ONERT's circle_plus_gen, read as it is written; a warning where that tool would misread it."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Any

from circle_train import losses
from circle_train.errors import ConfigError, refusing
from circle_train.losses import CategoricalCrossentropy, Loss, MeanSquaredError, SparseCategoricalCrossentropy
from circle_train.optimizers import SGD, Adam, Optimizer
from circle_train.printable import printable
from circle_train.settings.as_json import parse_trainable, refuse_unknown
from circle_train.settings.circleplus import unsayable
from circle_train.settings.config import Trainable, TrainConfig

KEYS = ("optimizer", "loss", "batchSize", "batch_size", "fineTuning", "fineFuning", "trainable", "epochs")
OPTIMIZERS: dict[str, type[Optimizer]] = {
    "sgd": SGD,
    "stocasticgradientdescent": SGD,
    "stochasticgradientdescent": SGD,
    "adam": Adam,
}
LOSSES: dict[str, type[Loss]] = {
    "sparse categorical crossentropy": SparseCategoricalCrossentropy,
    "sparsecategoricalcrossentropy": SparseCategoricalCrossentropy,
    "sparsecce": SparseCategoricalCrossentropy,
    "categorical crossentropy": CategoricalCrossentropy,
    "categoricalcrossentropy": CategoricalCrossentropy,
    "cce": CategoricalCrossentropy,
    "mean squared error": MeanSquaredError,
    "mse": MeanSquaredError,
}
REDUCTIONS = {"sum over batch size": "mean", "sumoverbatchsize": "mean", "mean": "mean", "sum": "sum"}
ARGUMENTS = {
    "learningRate": "learning_rate",
    "beta1": "beta_1",
    "beta2": "beta_2",
    "fromLogits": "from_logits",
}
"""Spelling in camel case: spelling in snake case."""


def is_onert_json(settings: Mapping[str, Any]) -> bool:
    """Whether the settings speak ONERT's language rather than ours (see train.settings)."""
    parts = [settings.get("optimizer"), settings.get("loss")]
    return any(key in settings for key in ("batchSize", "fineTuning", "fineFuning")) or any(
        isinstance(part, Mapping) and "args" in part for part in parts
    )


def from_onert_json(settings: Mapping[str, Any], where: str = "settings") -> TrainConfig:
    """The config that circle_plus_gen's JSON means to say."""
    with refusing(ConfigError, where, "give what circle_plus_gen takes"):
        return _config(settings, where)


def _config(settings: Mapping[str, Any], where: str) -> TrainConfig:
    refuse_unknown(settings, KEYS, where)
    batch_size = settings.get("batchSize", settings.get("batch_size"))
    if batch_size is None:
        raise ConfigError(f"{where}: 'batchSize' is missing, expected a whole number from 1")
    return TrainConfig(
        loss=_loss(settings, where),
        optimizer=_optimizer(settings, where),
        batch_size=batch_size,
        trainable=_trainable(settings, where),
        epochs=settings.get("epochs", 0),
    )


def to_onert_json(config: TrainConfig, operators: int) -> dict[str, Any]:
    """What circle_plus_gen would print of these settings; sets it cannot say stand as `trainable`."""
    loss, optimizer = config.loss, config.optimizer
    if found := unsayable(loss) or unsayable(optimizer):
        raise ConfigError(f"ONERT's settings have no {found}; print the settings in our own JSON")
    assert isinstance(loss, Loss) and isinstance(optimizer, Optimizer)
    reduction = "sum" if loss.reduction is losses.Reduction.SUM else "sum over batch size"
    kind = next(name for name, cls in LOSSES.items() if cls is type(loss))
    arguments: dict[str, Any] = {"learningRate": optimizer.base_learning_rate}
    if isinstance(optimizer, Adam):
        arguments |= {"beta1": optimizer.beta_1, "beta2": optimizer.beta_2, "epsilon": optimizer.epsilon}
    loss_arguments: dict[str, Any] = {"reduction": reduction}
    if isinstance(loss, losses.CrossEntropyLoss):
        loss_arguments["fromLogits"] = bool(loss.from_logits)
    made: dict[str, Any] = {
        "optimizer": {"type": "adam" if isinstance(optimizer, Adam) else "sgd", "args": arguments},
        "loss": {"type": kind, "args": loss_arguments, "reduction": reduction},
        "batchSize": config.batch_size,
    }
    count = _fine_tuning(config.trainable, operators)
    return made | ({"trainable": list(config.trainable)} if count is None else {"fineTuning": count})  # type: ignore[arg-type]


def _fine_tuning(trainable: Trainable, operators: int) -> int | None:
    """The tool's number: 0 all, -1 none, n the last n."""
    if trainable in ("all", "none"):
        return 0 if trainable == "all" else -1
    if isinstance(trainable, tuple) and trainable and trainable[0] == "last":
        return 0 if trainable[1] == operators else int(trainable[1])
    return None


def _optimizer(settings: Mapping[str, Any], where: str) -> Optimizer:
    kind, arguments = _part(settings, "optimizer", OPTIMIZERS, where)
    known = ("learning_rate", "beta_1", "beta_2", "epsilon") if kind is Adam else ("learning_rate",)
    optimizer: Optimizer = kind(**_arguments(arguments, known, f"{where}: optimizer.args"))
    return optimizer


def _loss(settings: Mapping[str, Any], where: str) -> Loss:
    kind, arguments = _part(settings, "loss", LOSSES, where)
    known = ("reduction",) if kind is MeanSquaredError else ("reduction", "from_logits")
    values = _arguments(arguments, known, f"{where}: loss.args")
    inner, outer = values.pop("reduction", None), settings["loss"].get("reduction")
    for value in (inner, outer):
        if value is not None and str(value).lower() not in REDUCTIONS:
            raise ConfigError(f"{where}: reduction is {value!r}, expected 'sum over batch size' or 'sum'")
    if inner is not None and outer is not None and REDUCTIONS[inner.lower()] != REDUCTIONS[outer.lower()]:
        _warn(
            f"{where}: loss.reduction is '{outer}', loss.args.reduction '{inner}'; "
            f"as in ONERT, '{outer}' is taken"
        )
    elif outer is None and inner is not None and REDUCTIONS[inner.lower()] == "sum":
        _warn(
            f"{where}: loss.args.reduction 'sum' is taken; "
            "ONERT's tool reads loss.reduction alone and would average"
        )
    chosen = outer if outer is not None else inner
    loss: Loss = kind(reduction=REDUCTIONS[chosen.lower()] if chosen is not None else "mean", **values)
    return loss


def _trainable(settings: Mapping[str, Any], where: str) -> Trainable:
    given = [key for key in ("trainable", "fineTuning", "fineFuning") if key in settings]
    if not given:
        return "all"
    if len({str(settings[key]) for key in given}) > 1:
        said = ", ".join(f"{key} {settings[key]!r}" for key in given)
        _warn(f"{where}: {said} contradict each other; {given[0]} is taken")
    elif given == ["fineFuning"]:
        _warn(
            f"{where}: fineFuning is taken as fineTuning; ONERT's tool would ignore it and train everything"
        )
    value = settings[given[0]]
    if given[0] == "trainable":
        trained: Trainable = parse_trainable(value, where)
        return trained
    if isinstance(value, bool) or not isinstance(value, int) or value < -1:
        raise ConfigError(
            f"{where}: {given[0]} is {value!r}, expected 0 for all operators, -1 for none or a count"
        )
    return "all" if value == 0 else "none" if value == -1 else ("last", value)


def _part(
    settings: Mapping[str, Any], name: str, table: Mapping[str, type[Any]], where: str
) -> tuple[type[Any], Mapping[str, Any]]:
    """The class that `type` names, and its arguments."""
    part = settings.get(name)
    if not isinstance(part, Mapping) or not isinstance(part.get("type"), str):
        raise ConfigError(f"{where}: {name} is {part!r}, expected an object with 'type' and 'args'")
    refuse_unknown(
        part, ("type", "args", "reduction") if name == "loss" else ("type", "args"), f"{where}: {name}"
    )
    kind, arguments = table.get(part["type"].lower()), part.get("args", {})
    if kind is None:
        raise ConfigError(
            f"{where}: {name} '{part['type']}' is unknown, expected one of {', '.join(sorted(table))}"
        )
    if not isinstance(arguments, Mapping):
        raise ConfigError(f"{where}: {name}.args is {arguments!r}, expected an object")
    return kind, arguments


def _arguments(arguments: Mapping[str, Any], known: tuple[str, ...], where: str) -> dict[str, Any]:
    """The arguments in snake case, numbers as numbers."""
    values = {ARGUMENTS.get(key, key): value for key, value in arguments.items()}
    refuse_unknown(values, known, where)
    for key, value in values.items():
        is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
        fits = {"from_logits": isinstance(value, bool), "reduction": isinstance(value, str)}.get(
            key, is_number
        )
        if not fits:
            expected = {"from_logits": "true or false", "reduction": "a word"}.get(key, "a number")
            raise ConfigError(f"{where}: {key} is {value!r}, expected {expected}")
    return values


def _warn(message: str) -> None:
    warnings.warn(printable(message), stacklevel=4)
