"""Training packages: everything that a device needs to train, made beforehand where the model is.

A package is a folder with `training.circle` (the model with its settings, Circle+, which ONERT reads too) and, if
training has begun already, `checkpoint.safetensors`. Names and layouts of an ONNX model's parameters come along,
so that `ct.TrainSession(folder)` needs no onnx.
"""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

from circle_train.convert import back
from circle_train.convert.back import portable
from circle_train.errors import ConfigError
from circle_train.format import read, save, write
from circle_train.format.atomic import make_folder
from circle_train.format.metadata import hints
from circle_train.ir import Module
from circle_train.model import CHECKPOINT, PACKAGED, Model, Source, load
from circle_train.runtime.state import State
from circle_train.session.train_session import TrainSession
from circle_train.settings.config import TrainConfig


def make_artifacts(
    model: Model | Source,
    out: str | os.PathLike[str],
    config: TrainConfig | None = None,
    *,
    nominal: bool = False,
    checkpoint: str | os.PathLike[str] | None = None,
) -> Path:
    """Write a training package that `ct.TrainSession(out)` opens; it is tried before it is written.

    Args:
        model: a path, bytes, file object, onnx.ModelProto or `Model`; ONNX, Circle or TFLite.
        out: the package's folder, which is made.
        config: what and how to train; None takes the settings that the model carries. A predicate in
            `trainable` becomes the list of the names that it chose.
        nominal: leave the weights out; whoever opens the package sets them first.
        checkpoint: a checkpoint to go on from, which becomes part of the package.

    Example:
        >>> import circle_train as ct, tempfile
        >>> config = ct.TrainConfig(loss="mse", batch_size=4)
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     package = ct.make_artifacts("tests/data/mlp.circle", folder, config)
        ...     ct.TrainSession(package).config.batch_size
        4
    """
    loaded = load(model)
    config = config or loaded.training
    if config is None:
        raise ConfigError("make_artifacts: the model carries no training settings; give a TrainConfig")
    session = TrainSession(loaded, config)
    session.prepare()
    if callable(config.trainable):
        config = config.replace(trainable=tuple(session.parameters.trainable()) or "none")
    module = packaged(loaded.with_training(config), session.state if nominal else None)
    folder = Path(out)
    make_folder(folder, "package folder", (PACKAGED, CHECKPOINT))
    if checkpoint is not None:
        session.load_checkpoint(checkpoint)
        if nominal:  # then the checkpoint must hold what the model no longer does
            session.parameters.update(dict(session.parameters))
        session.save_checkpoint(folder / CHECKPOINT)
    save(module, folder / PACKAGED)
    return folder


def packaged(model: Model, without: State | None) -> Module:
    """The model with what training needs to know beside it; without the values of a state's parameters."""
    module = hints.attach(model.module)
    if model.provenance is not None:
        module = hints.put_entry(module, back.ENTRY, portable.describe(model.provenance))
    if without is None:
        return module
    own = read(write(replace(module, carried={})))
    hints.restore(own)
    names = {parameter.root.name for parameter in without.parameters.values()}
    roots = [t for t in own.main.all_tensors() if t.is_constant and t.name in names]
    return hints.attach(hints.without_values(own, roots))
