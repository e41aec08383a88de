"""ONNX Runtime's checkpoint into a session: parameters by name, AdamW's moments, the step, properties."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from circle_train.checkpoints.changes import Changes
from circle_train.checkpoints.ort_file import OrtCheckpoint
from circle_train.checkpoints.slices import Stored
from circle_train.errors import CheckpointError
from circle_train.ir import StateKey
from circle_train.ir.tensor_type import Array
from circle_train.optimizers import AdamW, AdamWStyle
from circle_train.runtime.state import State
from circle_train.runtime.weights import Layout
from circle_train.settings.config import TrainConfig

MOMENTS = ("m", "v")


def changes_of(
    found: OrtCheckpoint, state: State, config: TrainConfig, inward: Layout, where: str
) -> Changes:
    """What the file would change, after comparing it with the session.

    ONNX Runtime does not store the learning rate in force, so the session's own stays.
    """
    if found.is_nominal:
        raise CheckpointError(
            f"checkpoint {where} is nominal: it holds names and no values; nothing was changed, load a full one"
        )
    _compare(found.parameters, state, where)
    arrays = {StateKey("value", name): array for name, array in found.parameters.items()}
    for name, moments in _moments(found, state, config, where).items():
        arrays.update((StateKey(kind, name), array) for kind, array in zip(MOMENTS, moments, strict=True))
    laid_out: dict[StateKey, Array | Stored] = {
        key: _fitting(key, array, state, inward, where) for key, array in arrays.items()
    }
    return Changes(laid_out, step=found.step, passes=found.step, properties=dict(found.properties))


def _moments(
    found: OrtCheckpoint, state: State, config: TrainConfig, where: str
) -> Mapping[str, tuple[Array, ...]]:
    """AdamW's, where both sides have them; SGD's single one is never used, not even by ONNX Runtime."""
    counts = {len(moments) for moments in found.moments.values()}
    optimizer = config.optimizer
    if counts <= {1}:
        if found.moments and not isinstance(optimizer, str) and optimizer.slots:
            raise _foreign(where, "its optimizer is SGD, this session trains with one that has moments")
        return {}
    is_adamw = isinstance(optimizer, AdamW) and optimizer.style is AdamWStyle.ORT
    if counts != {2} or not is_adamw:
        raise _foreign(
            where, f"its optimizer is AdamW, this session trains with {type(optimizer).__name__}; "
            "AdamW(style='ort') goes on from there"
        )  # fmt: skip
    trained = {name for name, parameter in state.parameters.items() if parameter.trained}
    if missing := sorted(trained - set(found.moments)):
        raise _foreign(where, f"it has no moments of '{missing[0]}', which this session trains")
    return {name: moments for name, moments in found.moments.items() if name in trained}


def _compare(parameters: Mapping[str, Array], state: State, where: str) -> None:
    """The same names on both sides; what the file leaves out may only be frozen."""
    for name in parameters:
        if name not in state.parameters:
            raise _foreign(where, f"it holds '{name}', which is no parameter here")
    for name, parameter in state.parameters.items():
        if parameter.trained and name not in parameters:
            raise _foreign(where, f"it lacks '{name}', which this session trains")


def _fitting(key: StateKey, array: Array, state: State, inward: Layout, where: str) -> Array:
    like = state.value(key.owner)
    try:
        laid_out = inward(key.owner, array)
    except ValueError:
        laid_out = array
    if laid_out.shape != like.shape or laid_out.dtype.kind != "f":
        found = f"{key.kind} of '{key.owner}' is {array.dtype} {array.shape}, expected {like.size} floats"
        raise _foreign(where, f"{found} as the ONNX model has them")
    return np.asarray(laid_out[tuple(map(slice, state.shape(key)))], like.dtype, order="C")


def _foreign(where: str, found: str) -> CheckpointError:
    return CheckpointError(
        f"checkpoint {where} does not belong to this session: {found}; nothing was changed, "
        "open the session on the model and settings it was written with"
    )
