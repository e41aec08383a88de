"""Circle+: a module that carries its training settings, in ONERT's record and, where it is short, ours."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import fields, is_dataclass, replace

import numpy as np

from circle_train import losses
from circle_train.errors import ConfigError, ModelError
from circle_train.format.flatbuffer.decode import Table
from circle_train.format.metadata.training_info import RECORD, attach, read_record, read_settings
from circle_train.ir import Graph, Module
from circle_train.losses import CategoricalCrossentropy, Loss, MeanSquaredError, SparseCategoricalCrossentropy
from circle_train.optimizers import SGD, Adam, Optimizer
from circle_train.settings.as_json import from_dict, to_dict
from circle_train.settings.config import Trainable, TrainConfig, names_of
from circle_train.settings.parameters import choose_trainable, find_parameters, operator_indices
from circle_train.settings.traced import with_traced_losses

SGD_RECORD, ADAM_RECORD = 0, 1
LOSSES: dict[int, type[Loss]] = {
    0: SparseCategoricalCrossentropy,
    1: CategoricalCrossentropy,
    2: MeanSquaredError,
}
"""The record's numbers; the number of a loss's options is one more."""
REDUCTIONS = {0: losses.Reduction.MEAN, 1: losses.Reduction.SUM}
SAID: dict[type, tuple[str, ...]] = {
    SGD: ("learning_rate",),
    Adam: ("learning_rate", "beta_1", "beta_2", "epsilon"),
    **dict.fromkeys(LOSSES.values(), ("reduction", "from_logits")),
}
"""What the record has fields for; any other setting is another rule of training."""


def training_of(module: Module) -> TrainConfig | None:
    """The settings that the module carries; ModelError where they are damaged."""
    record, settings = read_record(module), read_settings(module)
    try:
        if settings is not None:
            config = from_dict(settings, "training settings of the model")
        elif record is not None:
            config = config_of_record(record, module.main)
        else:
            return None
    except ConfigError as error:
        raise ModelError(f"metadata '{RECORD}': {error}; write the training settings anew") from None
    return _overrule_logits(config, module.main)


def with_training(module: Module, config: TrainConfig | None) -> Module:
    """A module that carries the settings in place of those it had; None takes them away.

    A loss or an optimizer that ONERT's record cannot say makes the record absent rather than wrong.
    """
    if config is None:
        return attach(module, None, None)
    config = _without_the_obvious(with_traced_losses(config, module.main), module.main)
    known = _known_record(module)
    record = {**known, **record_of_config(config, module.main)} if _has_record(config) else None
    complete = record is not None and config_of_record(_as_read(record), module.main) == config
    return attach(module, record, None if complete else to_dict(config))


def config_of_record(record: Table, graph: Graph) -> TrainConfig:
    """What ONERT's record says, every field honoured."""
    trained = record.get("trainable_ops")
    return TrainConfig(
        loss=_loss(record),
        optimizer=_optimizer(record),
        batch_size=int(record.get("batch_size", 0)),
        trainable=_trainable([] if trained is None else [int(index) for index in trained], len(graph.nodes)),
        epochs=int(record.get("epochs", 0)),
    )


def record_of_config(config: TrainConfig, graph: Graph) -> Table:
    """ONERT's record of a config; what it has no field for is left out."""
    loss, optimizer = config.loss, config.optimizer
    assert isinstance(loss, Loss) and isinstance(optimizer, Optimizer)
    number = next(number for number, cls in LOSSES.items() if isinstance(loss, cls))
    logits = {"from_logits": True} if getattr(loss, "from_logits", None) else {}
    options: Table = {"learning_rate": optimizer.base_learning_rate}
    if isinstance(optimizer, Adam):
        options |= {"beta_1": optimizer.beta_1, "beta_2": optimizer.beta_2, "epsilon": optimizer.epsilon}
    kind = ADAM_RECORD if isinstance(optimizer, Adam) else SGD_RECORD
    indices = sorted(set(_indices(config, graph)))
    return {
        "optimizer": kind,
        "optimizer_opt_type": kind + 1,
        "optimizer_opt": options,
        "lossfn": number,
        "lossfn_opt_type": number + 1,
        "lossfn_opt": logits,
        "epochs": config.epochs,
        "batch_size": config.batch_size,
        "loss_reduction_type": int(loss.reduction is losses.Reduction.SUM),
        "trainable_ops": np.array(indices, np.int32),
    }


def _optimizer(record: Table) -> Optimizer:
    kind, tag, options = (
        record.get("optimizer", 0),
        record.get("optimizer_opt_type", 0),
        record.get("optimizer_opt"),
    )
    if kind not in (SGD_RECORD, ADAM_RECORD):
        raise ModelError(
            f"metadata '{RECORD}': optimizer is {kind}, expected 0 (SGD) or 1 (Adam); write it anew"
        )
    if tag != kind + 1 or not isinstance(options, Mapping):
        raise ModelError(
            f"metadata '{RECORD}': optimizer {'Adam' if kind else 'SGD'} comes with options of kind {tag}, "
            f"expected {kind + 1}; without a learning rate nothing can be trained, write the settings anew"
        )
    names = ("learning_rate", "beta_1", "beta_2", "epsilon")
    rate, *betas = (_shortest(options.get(name, 0.0)) for name in names)
    if kind == SGD_RECORD:
        return SGD(rate)
    return (
        Adam(rate, *betas) if any(betas) else Adam(rate)
    )  # three zeros: what ONERT exports for its defaults


def _loss(record: Table) -> Loss:
    number, reduction = record.get("lossfn", 0), record.get("loss_reduction_type", 0)
    if number not in LOSSES or reduction not in REDUCTIONS:
        what, found, most = (
            ("lossfn", number, 2) if number not in LOSSES else ("loss_reduction_type", reduction, 1)
        )
        raise ModelError(
            f"metadata '{RECORD}': {what} is {found}, expected 0 to {most}; write the settings anew"
        )
    tag, options = record.get("lossfn_opt_type", 0), record.get("lossfn_opt")
    stated = isinstance(options, Mapping) and tag == number + 1
    if tag and not stated:
        raise ModelError(
            f"metadata '{RECORD}': lossfn {number} comes with options of kind {tag}, expected {number + 1}"
        )
    if stated and isinstance(options, Mapping) and options.get("from_logits"):
        return LOSSES[number](reduction=REDUCTIONS[reduction], from_logits=True)  # type: ignore[call-arg]
    return LOSSES[number](reduction=REDUCTIONS[reduction])


def _trainable(trained: list[int], operators: int) -> Trainable:
    indices = sorted(set(trained))
    if indices and not 0 <= indices[0] <= indices[-1] < operators:
        wrong = next(index for index in indices if not 0 <= index < operators)
        raise ModelError(
            f"metadata '{RECORD}': trainable_ops names operator {wrong}, the model has 0 to {operators - 1}"
        )
    if len(indices) == operators:
        return "all"
    if indices == list(range(operators - len(indices), operators)):
        return ("last", len(indices)) if indices else "none"
    return tuple(indices)


def _indices(config: TrainConfig, graph: Graph) -> list[int]:
    """The trained operators; of parameters that are listed by name, those that use one."""
    trainable = config.trainable
    if callable(trainable):
        raise ConfigError(
            "trainable is a function of parameter names, which no file can hold; give a list of names"
        )
    if names_of(trainable) is None:
        return list(operator_indices(trainable, len(graph.nodes)))
    chosen = choose_trainable(trainable, find_parameters(graph), len(graph.nodes), config.frozen)
    return [node.index for parameter in chosen for node in parameter.consumers]


def _has_record(config: TrainConfig) -> bool:
    """Whether ONERT's record says all of the loss and of the optimizer."""
    return unsayable(config.loss) is None and unsayable(config.optimizer) is None


def unsayable(rule: object) -> str | None:
    """What ONERT has no field for in a loss or an optimizer: its kind, or the first setting; None where it says all."""
    said = SAID.get(type(rule))
    if said is None or not is_dataclass(rule):
        return "list of losses" if isinstance(rule, tuple) else type(rule).__name__
    for field in fields(rule):
        value = getattr(rule, field.name)
        has_number = value in REDUCTIONS.values() if field.name == "reduction" else not callable(value)
        if not (field.name in said and has_number) and value != field.default:
            return f"{type(rule).__name__}({field.name}={value!r})"
    return None


def _known_record(module: Module) -> Table:
    """Version and slots of a newer schema in the record that is there, which a new one keeps."""
    try:
        found = read_record(module) or {}
    except ModelError:
        return {}  # a damaged record is what the new one replaces
    return {name: value for name, value in found.items() if isinstance(name, int) or name == "version"}


def _as_read(record: Table) -> Table:
    """The record with its numbers as float32, as they will be read."""
    options = {name: float(np.float32(value)) for name, value in record["optimizer_opt"].items()}
    return {**record, "optimizer_opt": options}


def _shortest(value: float) -> float:
    """The decimal that a float32 was written as: 0.9, not 0.8999999761581421."""
    return float(str(np.float32(value)))


def _gives_probabilities(loss: losses.CrossEntropyLoss, graph: Graph) -> bool:
    return bool(graph.outputs) and loss.normalized(graph.outputs[0]) is not None


def _without_the_obvious(config: TrainConfig, graph: Graph) -> TrainConfig:
    """`from_logits=False` of a model that gives probabilities: what the record says by saying nothing."""
    loss = config.loss
    if (
        isinstance(loss, losses.CrossEntropyLoss)
        and loss.from_logits is False
        and _gives_probabilities(loss, graph)
    ):
        return config.replace(loss=replace(loss, from_logits=None))
    return config


def _overrule_logits(config: TrainConfig, graph: Graph) -> TrainConfig:
    """In a file, `from_logits` does not count against the graph, as ONERT never looks at it."""
    loss = config.loss
    if not isinstance(loss, losses.CrossEntropyLoss) or loss.from_logits is None:
        return config
    probabilities = _gives_probabilities(loss, graph)
    if loss.from_logits is not probabilities:
        return config
    ending = f"{'ends' if probabilities else 'does not end'} in {loss.normalizer}"
    warnings.warn(
        f"the file's training settings say from_logits={loss.from_logits}, but the model {ending}; "
        "as in ONERT, the model decides",
        stacklevel=4,
    )
    return config.replace(loss=replace(loss, from_logits=None))
