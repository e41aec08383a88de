"""A session's state in our own checkpoint: named arrays, counters, settings, and the model they belong to."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Set
from dataclasses import fields, is_dataclass
from math import inf
from typing import Any

import numpy as np

from circle_train.checkpoints import safetensors
from circle_train.checkpoints.changes import Changes
from circle_train.checkpoints.safetensors import Data, Entry
from circle_train.checkpoints.slices import FileSlices
from circle_train.errors import FOREIGN, CheckpointError, ConfigError
from circle_train.fitting.course import BrokenOff, pack, unpack
from circle_train.ir import Graph, Module, StateKey
from circle_train.ir.tensor_type import Array
from circle_train.optimizers import Optimizer
from circle_train.passes.integers.as_shipped import Rounding
from circle_train.runtime.state import State
from circle_train.settings.as_json import from_dict, to_dict
from circle_train.settings.config import TrainConfig

FORMAT = "circle_train.checkpoint/1"
COUNTERS = ("step", "epoch", "position", "epochs_begun", "seed")
CALLBACK = "callback"
"""The kind of arrays that callbacks remember."""
PASSING = ("scalars",)
"""Kinds of state that every step computes anew."""


def encode_state(module: Module, state: State, config: TrainConfig, seed: int) -> list[bytes | memoryview]:
    """Everything that training goes on from, in pieces; frozen weights that nobody set are the model's and left out."""
    arrays = {
        f"{key.kind}/{key.owner}": array
        for key, array in state.arrays.items()
        if key.kind not in PASSING and (key.kind != "value" or array.flags.writeable)
    }
    stored = {name.removeprefix("value/") for name in arrays if name.startswith("value/")}
    progress = {
        "step": state.step,
        "epoch": state.epoch,
        "position": state.position,
        "epochs_begun": state.epochs_begun,
        "passes": state.passes,
        "learning_rate": state.learning_rate.hex(),
        "seed": seed,
        "optimizer": type(config.optimizer).__name__,
    }
    metadata = {
        "format": FORMAT,
        "model": fingerprint(module.main, state, stored),
        "progress": json.dumps(progress),
        "config": _settings(config),
    }
    if state.properties:
        metadata["properties"] = json.dumps(state.properties)
    if state.rounding is not None:
        metadata["rounding"] = json.dumps(state.rounding.as_data())
    if state.course is not None:
        metadata["fit"], remembered = pack(state.course.snapshot())
        arrays.update({f"{CALLBACK}/{name}": array for name, array in remembered.items()})
    return safetensors.pieces(arrays, metadata)


def decode_state(
    data: Data | FileSlices, module: Module, state: State, config: TrainConfig, where: str
) -> Changes:
    """What the file would change, after comparing model, optimizer and every array."""
    named, metadata = safetensors.decode(data, where)
    if metadata.get("format") != FORMAT:
        raise _foreign(where, f"its format is {metadata.get('format', 'not stated')!r}, expected '{FORMAT}'")
    arrays: dict[StateKey, Entry] = {_key(name, where): array for name, array in named.items()}
    remembered = {key.owner: np.asarray(arrays.pop(key)) for key in list(arrays) if key.kind == CALLBACK}
    _compare(arrays, state, config, where)
    stored = {key.owner for key in arrays if key.kind == "value"}
    if metadata.get("model") != fingerprint(module.main, state, stored):
        raise _foreign(where, "its model has other operators, tensors or frozen constants than this one")
    progress = _progress(metadata, where)
    if progress["optimizer"] != type(config.optimizer).__name__:
        here = type(config.optimizer).__name__
        raise _foreign(where, f"it was written by {progress['optimizer']}, this session trains with {here}")
    restored = [name for name in state.parameters if name not in stored and state.is_own(name)]
    return Changes(
        arrays,
        restored,
        progress["step"],
        progress["epoch"],
        progress["position"],
        progress["epochs_begun"],
        float.fromhex(progress["learning_rate"]),
        progress["seed"],
        progress.get("passes", progress["step"]),
        _properties(metadata, where),
        _course(metadata, remembered, where),
        _rounding(metadata, where),
    )


def stored_config(data: Data | FileSlices, where: str) -> TrainConfig | None:
    """The settings that the file was written under; None where they had a part that only Python can hold."""
    _, metadata = safetensors.decode(data, where)
    try:
        settings = json.loads(metadata.get("config", ""))
    except ValueError:
        return None
    return from_dict(settings, where)


def fingerprint(graph: Graph, state: State, stored: Set[str]) -> str:
    """A hash of operators, tensors and of every constant that the checkpoint does not hold itself."""
    digest = hashlib.sha256()
    tensors = list(graph.all_tensors())
    number = {tensor: index for index, tensor in enumerate(tensors)}
    own = {parameter.root.buffer for name, parameter in state.parameters.items() if name in stored}
    for tensor in tensors:
        digest.update(f"{tensor.name}|{tensor.type}|".encode("utf-8", "surrogateescape"))
        if tensor.buffer is not None and tensor.buffer not in own:
            digest.update(tensor.buffer.bytes.data)
    for node in graph.nodes:
        wires = [
            [-1 if tensor is None else number[tensor] for tensor in group]
            for group in (node.inputs, node.outputs)
        ]
        digest.update(f"{node.op.name}{_options(node.op)}{wires}".encode("utf-8", "surrogateescape"))
        for inner in getattr(node.op, "graphs", ()):
            digest.update(fingerprint(inner, state, stored).encode())
    return digest.hexdigest()


def _options(op: Any) -> list[str]:
    """An operator's settings that are numbers, words or tuples of them."""
    plain = (bool, int, float, str, tuple)
    found = {field.name: getattr(op, field.name) for field in fields(op)} if is_dataclass(op) else {}
    return [
        f"{name}={value!r}" for name, value in found.items() if isinstance(value, plain) and name != "graphs"
    ]


def _compare(arrays: Mapping[StateKey, Entry], state: State, config: TrainConfig, where: str) -> None:
    """Every array belongs to a parameter of its shape, and nothing that is trained is missing."""
    for key, array in arrays.items():
        if key.owner not in state.parameters:
            raise _foreign(where, f"it holds '{key.owner}', which is no parameter here")
        like = state.value(key.owner)
        shape = state.shape(key)
        if array.shape != shape or array.dtype != like.dtype:
            raise _foreign(
                where,
                f"{key.kind} of '{key.owner}' is {array.dtype} {array.shape}, here {like.dtype} {shape}",
            )
    assert isinstance(config.optimizer, Optimizer)
    for name, parameter in state.parameters.items():
        needed = (
            ("value", *config.optimizer.slots) if parameter.trained else ("value",) if parameter.moves else ()
        )
        for kind in needed:
            if StateKey(kind, name) not in arrays:
                raise _foreign(where, f"it lacks the {kind} of '{name}', which this session trains")


def _key(name: str, where: str) -> StateKey:
    kind, slash, owner = name.partition("/")
    if not slash:
        raise _foreign(where, f"it holds an array '{name}', expected names like 'value/{name}'")
    return StateKey(kind, owner)


def _progress(metadata: Mapping[str, str], where: str) -> dict[str, Any]:
    try:
        progress = json.loads(metadata["progress"])
        rate = float.fromhex(progress["learning_rate"])
        counters = [*(progress[name] for name in COUNTERS), progress.get("passes", 0)]
    except FOREIGN as error:
        raise _foreign(where, f"its progress cannot be read ({error})") from None
    if (
        not all(type(counter) is int and 0 <= counter < 1 << 63 for counter in counters)
        or "optimizer" not in progress
        or not 0 <= rate < inf
    ):
        raise _foreign(where, f"its progress is {metadata['progress'][:120]}")
    return dict(progress)


def _course(metadata: Mapping[str, str], remembered: Mapping[str, Array], where: str) -> BrokenOff | None:
    """The fit that was under way; older files say nothing of its callbacks."""
    if "fit" not in metadata:
        return None
    try:
        return BrokenOff(unpack(metadata["fit"], remembered))
    except FOREIGN as error:
        raise _foreign(where, f"its fit cannot be read ({error})") from None


def _rounding(metadata: Mapping[str, str], where: str) -> Rounding | None:
    """The scales that training rounded to."""
    if "rounding" not in metadata:
        return None
    try:
        return Rounding.from_data(json.loads(metadata["rounding"]))
    except FOREIGN as error:
        raise _foreign(where, f"the scales that it rounds to cannot be read ({error})") from None


def _properties(metadata: Mapping[str, str], where: str) -> dict[str, int | float | str]:
    try:
        properties = json.loads(metadata.get("properties", "{}"))
    except FOREIGN as error:
        raise _foreign(where, f"its properties cannot be read ({error})") from None
    if not isinstance(properties, dict) or not all(type(v) in (int, float, str) for v in properties.values()):
        raise _foreign(where, f"its properties are {metadata['properties'][:120]}")
    return properties


def _settings(config: TrainConfig) -> str:
    """The settings, for people to read; a part that only Python can hold is shown as Python shows it."""
    try:
        return json.dumps(to_dict(config))
    except ConfigError:
        return repr(config)


def _foreign(where: str, found: str) -> CheckpointError:
    return CheckpointError(
        f"checkpoint {where} does not belong to this session: {found}; nothing was changed, "
        "open the session as it was when the checkpoint was written"
    )
