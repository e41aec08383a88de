"""A session's state in ONERT's checkpoint: constants by slot, Adam's moments, the step."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from circle_train.checkpoints.changes import Changes
from circle_train.checkpoints.onert_file import OnertCheckpoint, Section, decode, pieces
from circle_train.checkpoints.onert_order import slot_readers
from circle_train.checkpoints.safetensors import Data
from circle_train.errors import CheckpointError
from circle_train.ir import DType, Module, StateKey, Tensor
from circle_train.ir.tensor_type import Array
from circle_train.optimizers import SGD, Adam
from circle_train.runtime.state import State
from circle_train.settings.config import TrainConfig
from circle_train.settings.parameters import Parameter

NOTHING = np.empty(0, np.uint8)


def encode_state(module: Module, state: State, config: TrainConfig, seed: int) -> list[bytes | memoryview]:
    """The pieces of an ONERT checkpoint of this state; `seed` has no place in it."""
    _require_optimizer(config)
    slots = slot_readers(module.main)
    owners = _owners(slots, state)
    values = tuple(
        _raw(state.value(owner)) if owner else _constant(slot)
        for (slot, _), owner in zip(slots, owners, strict=True)
    )
    moments = None
    if isinstance(config.optimizer, Adam):
        moments = (_moments("m", owners, state), _moments("v", owners, state))
    return pieces(OnertCheckpoint(values, moments, state.step))


def decode_state(data: Data, module: Module, state: State, config: TrainConfig, where: str) -> Changes:
    """What the file would change, after comparing every slot with the model."""
    _require_optimizer(config)
    slots = slot_readers(module.main)
    found = decode(data, [_constant(slot).nbytes for slot, _ in slots], where)
    adam = isinstance(config.optimizer, Adam)
    if adam != (found.moments is not None):
        kinds = ("SGD", "Adam")
        raise CheckpointError(
            f"checkpoint {where} was written by {kinds[found.moments is not None]}, this session trains with "
            f"{kinds[adam]}; nothing was changed, open the session with the other optimizer"
        )
    changes = Changes(step=found.step, epochs_begun=state.epochs_begun)
    owners = _owners(slots, state)
    for index, ((slot, _), owner) in enumerate(zip(slots, owners, strict=True)):
        if owner is None:
            _compare(slot, found.values[index], where)
            continue
        _take(changes, StateKey("value", owner), found.values[index], state, where)
        if found.moments is not None and state.parameters[owner].trained:
            for kind, section in zip(("m", "v"), found.moments, strict=True):
                _take(changes, StateKey(kind, owner), section[index], state, where)
    return changes


def stored_config(data: Data, where: str) -> TrainConfig | None:
    """The kind of optimizer is all that ONERT's file tells: Adam's has a second section."""
    second_section = int.from_bytes(data[8:12], "little")
    return TrainConfig(optimizer="adam" if second_section else "sgd")


def _require_optimizer(config: TrainConfig) -> None:
    optimizer = config.optimizer
    if not isinstance(optimizer, (SGD, Adam)) or (isinstance(optimizer, SGD) and optimizer.slots):
        kind = type(optimizer).__name__ + (" with momentum" if isinstance(optimizer, SGD) else "")
        raise CheckpointError(
            f"ONERT's checkpoint has no place for the state of {kind}; use a .safetensors file"
        )


def _owners(slots: Sequence[tuple[Tensor, int]], state: State) -> list[str | None]:
    """The parameter that each slot, a constant as one operator reads it, belongs to; None for what is no parameter."""
    known: dict[Tensor, list[Parameter]] = {}
    held = {slot for slot, _ in slots}
    for name, parameter in state.parameters.items():
        for tensor in parameter.stands_for:
            known.setdefault(tensor, []).append(parameter)
        if parameter.root.dtype is not DType.FLOAT32:
            raise CheckpointError(
                f"parameter '{name}' is {parameter.root.dtype.name.lower()} in the model, ONERT's checkpoint holds "
                "float32; use a .safetensors file"
            )
        if parameter.trained and held.isdisjoint(parameter.stands_for):
            raise CheckpointError(
                f"parameter '{name}' belongs to a graph within the model's own, ONERT's checkpoint holds the weights of "
                "that one alone; use a .safetensors file"
            )
    return [
        next((p.name for p in known.get(slot, ()) if p.is_read_as(slot, reader)), None)
        for slot, reader in slots
    ]


def _moments(kind: str, owners: Sequence[str | None], state: State) -> Section:
    """One slot each, empty where nothing is trained."""
    section = []
    for owner in owners:
        if owner is None or not state.parameters[owner].trained:
            section.append(NOTHING)
        else:
            section.append(_raw(state.spread(StateKey(kind, owner))))
    return tuple(section)


def _take(changes: Changes, key: StateKey, raw: Array, state: State, where: str) -> None:
    """Note the new elements of one array; a shared constant must have the same in all its slots."""
    like = state.value(key.owner)
    if raw.nbytes != like.nbytes:
        raise CheckpointError(
            f"checkpoint {where} has no moments of '{key.owner}', which this session trains; nothing was "
            "changed, train the operators that were trained when it was written"
        )
    learned = tuple(map(slice, state.shape(key)))
    array = raw.view(like.dtype).reshape(like.shape)[learned]
    known = np.asarray(changes.arrays.setdefault(key, array))
    if known is not array and known.tobytes() != array.tobytes():
        raise CheckpointError(
            f"checkpoint {where} holds different copies of '{key.owner}', which several operators share: "
            "ONERT trained them apart, this session has one; nothing was changed, give each "
            "operator a constant of its own"
        )


def _compare(slot: Tensor, raw: Array, where: str) -> None:
    if raw.tobytes() != _constant(slot).tobytes():
        raise CheckpointError(
            f"checkpoint {where} belongs to another model: its constant '{slot.name}' differs from the "
            "model's; nothing was changed"
        )


def _constant(slot: Tensor) -> Array:
    assert slot.buffer is not None
    return slot.buffer.bytes


def _raw(array: Array) -> Array:
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8)
