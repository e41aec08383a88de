"""Training settings as plain data: the JSON and TOML that people write, and what lies beside ONERT's record.

{"loss": {"type": "categorical_crossentropy", "reduction": "sum"},
 "optimizer": {"type": "sgd", "learning_rate": 0.1},
 "batch_size": 16, "trainable": "last:2", "metrics": ["categorical_accuracy"], "epochs": 5}
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields, is_dataclass, replace
from typing import Any

import numpy as np

from circle_train import losses, optimizers
from circle_train.errors import ConfigError, refusing
from circle_train.fitting.metrics.scores import BY_NAME as METRICS
from circle_train.ir import Graph
from circle_train.likeness import likeness
from circle_train.losses import loss_graph
from circle_train.optimizers import schedules
from circle_train.optimizers.optimizer import ParameterGroup
from circle_train.settings.config import TrainConfig
from circle_train.settings.quantization import Int8

SCHEDULES: dict[str, type[schedules.Schedule]] = {
    "linear_warmup": schedules.LinearWarmup,
    "cosine": schedules.Cosine,
    "step": schedules.Step,
    "exponential": schedules.Exponential,
    "one_cycle": schedules.OneCycle,
    "trapezoid": schedules.Trapezoid,
}
GROUP = {"parameters": ParameterGroup}
QUANTIZE = {"int8": Int8}
LOSSES: dict[str, type[losses.Loss]] = {
    **losses.BY_NAME,
    "sum": losses.Sum,
    "traced": losses.Traced,
    "traced_joint": losses.TracedJoint,
}
KEYS = tuple(field.name for field in fields(TrainConfig))


def from_dict(settings: Mapping[str, Any], where: str = "settings") -> TrainConfig:
    """The config that the data describe; unknown keys are refused by name."""
    with refusing(ConfigError, where, "docs/settings.schema.json says what settings may hold"):
        return _config(settings, where)


def _config(settings: Mapping[str, Any], where: str) -> TrainConfig:
    refuse_unknown(settings, KEYS, where)
    values = dict(settings)
    if "loss" in values:
        values["loss"] = _losses(values["loss"], f"{where}: loss")
    if "optimizer" in values:
        values["optimizer"] = build(values["optimizer"], optimizers.BY_NAME, f"{where}: optimizer")
    if "metrics" in values:
        values["metrics"] = [build(metric, METRICS, f"{where}: metric") for metric in values["metrics"]]
    if isinstance(values.get("quantize"), Mapping):
        values["quantize"] = build({"type": "int8", **values["quantize"]}, QUANTIZE, f"{where}: quantize")
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
    for field in fields(config):
        value = getattr(config, field.name)
        if field.name not in {*found, "metrics", "quantize"} and value != field.default:
            found[field.name] = _plain(value, field.name)
    if config.quantize is not None:  # its samples stay where they are
        found["quantize"] = describe(
            replace(config.quantize, calibration=None, validation=None, tolerance=None)
        )
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
            "trainable is a function of parameter names, which no file can hold; give a list of names"
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
    settings = {key: _value(key, setting, where) for key, setting in settings.items()}
    try:
        return cls(**settings)
    except TypeError as error:
        raise ConfigError(
            f"{where} '{value['type']}': {error}; give numbers where numbers are meant"
        ) from None


def _value(key: str, value: Any, where: str) -> Any:
    """A schedule in place of a learning rate, groups of parameters, tuples where JSON has lists."""
    if key == "learning_rate" and isinstance(value, Mapping):
        return build(value, SCHEDULES, f"{where}: learning_rate")
    if key == "graph" and isinstance(value, Mapping):
        return loss_graph.restore(value, where)
    if key == "terms" and isinstance(value, list):
        return tuple((float(factor), build(term, LOSSES, where)) for factor, term in value)
    if key == "class_weights" and isinstance(value, Mapping):
        return {int(number): weight for number, weight in value.items()}
    if key == "groups" and isinstance(value, list):
        return tuple(build(group, GROUP, f"{where}: group") for group in value)
    return tuple(value) if isinstance(value, list) else value


def describe(part: Any) -> dict[str, Any]:
    """A loss, an optimizer, a metric: its name and the settings that are not the default."""
    found: dict[str, Any] = {"type": _name(part)}
    for field in fields(part):
        value = getattr(part, field.name)
        if field.name == "learning_rate" or value != field.default:
            found[field.name] = _plain(value, f"{found['type']}: {field.name}")
    return found


def _plain(value: Any, where: str) -> Any:
    """The value as JSON has it."""
    if isinstance(value, enum.Enum):
        return value.value
    if isinstance(value, Graph):
        return loss_graph.describe(value)
    if is_dataclass(value):
        return describe(value)
    if isinstance(value, (tuple, list)):
        return [_plain(item, where) for item in value]
    if isinstance(value, Mapping):
        return {str(key): _plain(item, where) for key, item in value.items()}
    if isinstance(value, (np.generic, np.ndarray)):
        return _plain(value.tolist(), where)
    if value is not None and not isinstance(value, (bool, int, float, str)):
        raise ConfigError(f"{where} is a {type(value).__name__}, which no file can hold; pass it from Python")
    return value


def refuse_unknown(found: Iterable[str], known: Sequence[str], where: str) -> None:
    """Name the keys that nobody would read, and what they may have been meant to be."""
    for key in found:
        if key not in known:
            near = [name for name in known if name.lower() == str(key).lower()]
            hint = f"; did you mean '{near[0]}'?" if near else likeness(str(key), known)
            raise ConfigError(f"{where}: '{key}' is unknown, expected {', '.join(known) or 'nothing'}{hint}")


def _short(described: dict[str, Any]) -> Any:
    """Just the name where there is nothing else to say."""
    return described["type"] if len(described) == 1 else described


def _losses(value: Any, where: str) -> Any:
    if isinstance(value, list):
        return [build(one, LOSSES, where) for one in value]
    return build(value, LOSSES, where)


def _name(part: Any) -> str:
    for table in (LOSSES, optimizers.BY_NAME, METRICS, SCHEDULES, GROUP, QUANTIZE):
        for name, cls in table.items():
            if cls is type(part):
                return name
    if isinstance(part, schedules.Function):
        raise ConfigError(
            "learning_rate is a function, which no file can hold; take one of ct.schedules, "
            "or a number and set session.learning_rate where training runs"
        )
    raise ConfigError(
        f"{type(part).__name__} is not one of circle_train's own, so no file can hold it; pass it from Python"
    )
