"""Training settings as plain data: the JSON and TOML that people write, and what lies beside ONERT's record.

{"loss": {"type": "categorical_crossentropy", "reduction": "sum"},
 "optimizer": {"type": "sgd", "learning_rate": 0.1},
 "batch_size": 16, "trainable": "last:2", "metrics": ["categorical_accuracy"], "epochs": 5}
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields, is_dataclass
from difflib import get_close_matches
from typing import Any

from circle_train.errors import ConfigError
from circle_train.train import losses, optimizers
from circle_train.train.config import TrainConfig

KEYS = ("loss", "optimizer", "batch_size", "trainable", "metrics", "loss_weights", "epochs")


def from_dict(settings: Mapping[str, Any], where: str = "settings") -> TrainConfig:
    """The config that the data describe; unknown keys are refused by name."""
    refuse_unknown(settings, KEYS, where)
    values = dict(settings)
    if "loss" in values:
        values["loss"] = _losses(values["loss"], f"{where}: loss")
    if "optimizer" in values:
        values["optimizer"] = build(values["optimizer"], optimizers.BY_NAME, f"{where}: optimizer")
    if "trainable" in values:
        values["trainable"] = parse_trainable(values["trainable"], where)
    return TrainConfig(**values)


def to_dict(config: TrainConfig) -> dict[str, Any]:
    """The config as data that JSON can hold; ConfigError where it has a part that only Python can."""
    loss: Any = config.loss
    found: dict[str, Any] = {
        "loss": [describe(one) for one in loss] if isinstance(loss, tuple) else describe(loss),
        "optimizer": describe(config.optimizer),
        "batch_size": config.batch_size,
        "trainable": describe_trainable(config.trainable),
    }
    if config.metrics:
        found["metrics"] = [
            metric if isinstance(metric, str) else describe(metric) for metric in config.metrics
        ]
    if config.loss_weights is not None:
        found["loss_weights"] = list(config.loss_weights)
    if config.epochs:
        found["epochs"] = config.epochs
    return found


def parse_trainable(value: Any, where: str) -> Any:
    """'all' | 'none' | 'last:n' | [operator indices], or what TrainConfig takes."""
    if isinstance(value, str) and value.startswith("last:"):
        count = value.removeprefix("last:").strip()
        if not count.lstrip("-").isdigit():
            raise ConfigError(f"{where}: trainable is '{value}', expected a number behind 'last:'")
        return ("last", int(count))
    return tuple(value) if isinstance(value, list) else value


def describe_trainable(value: Any) -> Any:
    if callable(value):
        raise ConfigError(
            "trainable is a function of parameter names, which no file can hold; give operator indices"
        )
    if isinstance(value, tuple):
        return f"last:{value[1]}" if value and value[0] == "last" else list(value)
    return value


def build(value: Any, table: Mapping[str, type[Any]], where: str) -> Any:
    """An object from its name, or from a mapping of `type` and its settings."""
    if isinstance(value, str):
        value = {"type": value}
    if not isinstance(value, Mapping) or not isinstance(value.get("type"), str):
        raise ConfigError(f"{where} is {value!r}, expected a name or an object with a 'type'")
    cls = table.get(value["type"].lower())
    if cls is None:
        raise ConfigError(f"{where} '{value['type']}' is unknown, expected one of {', '.join(sorted(table))}")
    settings = {key: setting for key, setting in value.items() if key != "type"}
    refuse_unknown(settings, [field.name for field in fields(cls)], f"{where} '{value['type']}'")
    try:
        return cls(**{key: tuple(item) if isinstance(item, list) else item for key, item in settings.items()})
    except TypeError as error:
        raise ConfigError(
            f"{where} '{value['type']}': {error}; give numbers where numbers are meant"
        ) from None


def describe(part: Any) -> dict[str, Any]:
    """A loss, an optimizer, a metric: its name and the settings that are not the default."""
    found: dict[str, Any] = {"type": _name(part)}
    for field in fields(part):
        value = getattr(part, field.name)
        value = (
            value.value
            if isinstance(value, enum.Enum)
            else list(value)
            if isinstance(value, tuple)
            else value
        )
        if is_dataclass(value):
            value = describe(value)
        if value is not None and not isinstance(value, (bool, int, float, str, list, dict)):
            raise ConfigError(
                f"{found['type']}: {field.name} is a {type(value).__name__}, which no file can hold"
            )
        default = field.default.value if isinstance(field.default, enum.Enum) else field.default
        if value != default or field.name == "learning_rate":
            found[field.name] = value
    return found


def refuse_unknown(found: Iterable[str], known: Sequence[str], where: str) -> None:
    """Name the keys that nobody would read, and what they may have been meant to be."""
    for key in found:
        if key not in known:
            near = get_close_matches(str(key), known, 1, 0.5)
            hint = f"; did you mean '{near[0]}'?" if near else ""
            raise ConfigError(f"{where}: '{key}' is unknown, expected {', '.join(known) or 'nothing'}{hint}")


def _losses(value: Any, where: str) -> Any:
    if isinstance(value, list):
        return [build(one, losses.BY_NAME, where) for one in value]
    return build(value, losses.BY_NAME, where)


def _name(part: Any) -> str:
    for table in (losses.BY_NAME, optimizers.BY_NAME):
        for name, cls in table.items():
            if cls is type(part):
                return name
    raise ConfigError(
        f"{type(part).__name__} is not one of circle_train's own, so no file can hold it; pass it from Python"
    )
