"""The inference file of a training session: the model as it was loaded, with the state's weights."""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Sequence

from circle_train import convert, format
from circle_train.errors import ConfigError
from circle_train.format.metadata import hints
from circle_train.format.metadata.description import OURS
from circle_train.format.metadata.training_info import find
from circle_train.model import Model
from circle_train.runtime import litert
from circle_train.runtime.module import is_changed, with_outputs, with_values
from circle_train.runtime.state import State

LOG = logging.getLogger(__name__)


def export(
    model: Model, state: State, path: str | os.PathLike[str], outputs: Sequence[str] | None = None
) -> None:
    """Write the inference model; the suffix decides the format."""
    if not os.fspath(path).lower().endswith(".onnx"):
        made = with_values(model.module, state) if outputs is None else trained(model, state, outputs).module
        litert.save(made, path)
        return
    export_onnx(model, state, path, outputs)


def trained(model: Model, state: State, outputs: Sequence[str] | None) -> Model:
    """The model with the state's weights, by themselves."""
    module = format.read(format.write(with_values(model.module, state)))
    hints.restore(module)
    return Model(module if outputs is None else with_outputs(module, outputs))


def export_onnx(
    model: Model, state: State, path: str | os.PathLike[str], outputs: Sequence[str] | None = None
) -> None:
    """Trained values back into the very ONNX file that was loaded."""
    require_onnx(model, path)
    values = {
        name: state.value(name)
        for name, parameter in state.parameters.items()
        if is_changed(state, parameter)
    }
    assert model.provenance is not None
    convert.write_back(model.provenance, values, path, outputs, _said(model))


def require_onnx(model: Model, path: str | os.PathLike[str]) -> None:
    """Refuse to make ONNX files of others."""
    if model.provenance is None:
        raise ConfigError(
            f"{os.fspath(path)}: the model did not come from ONNX; export it as .circle or .tflite"
        )


def _said(model: Model) -> dict[str, str]:
    """The model's description for the properties of an ONNX file: ours, and the labels as others write them."""
    raw = find(model.module, OURS)
    if raw is None:
        return {}
    named = {"names": json.dumps(dict(enumerate(model.labels)))} if model.labels else {}
    return {OURS: raw.decode(), **named}
