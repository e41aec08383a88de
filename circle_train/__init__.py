"""Train .circle, .tflite and .onnx models where the data is, and get an inference file back.

Example:
    >>> import circle_train as ct
    >>> model = ct.load("tests/data/mlp.circle")
    >>> session = ct.TrainSession(model, ct.TrainConfig(loss="mse", optimizer="adam", trainable=("last", 1)))
"""

from importlib import import_module
from typing import Any

from circle_train.errors import (
    CheckpointError,
    CircleTrainError,
    ConfigError,
    ConversionError,
    DataError,
    ModelError,
    UnsupportedOpError,
)
from circle_train.release import VERSION

__version__ = VERSION

_HOMES = {
    "finetune": "finetuning",
    "InferenceSession": "session",
    "load": "model",
    "make_artifacts": "session.packages",
    "Model": "model",
    "TrainConfig": "settings.config",
    "TrainSession": "session",
}
"""Public names that are imported when they are asked for, and where they live; `__init__.pyi` tells type checkers."""
_ROOMS = ("callbacks", "data", "losses", "metrics", "optimizers", "schedules")

__all__ = [  # noqa: PLE0604 -- and names of what __getattr__ gives
    "CheckpointError",
    "CircleTrainError",
    "ConfigError",
    "ConversionError",
    "DataError",
    "ModelError",
    "UnsupportedOpError",
    *_HOMES,
    *_ROOMS,
]


def __getattr__(name: str) -> Any:
    """A public name at its first use: the import itself takes hundredths of a second."""
    if name in _ROOMS:
        return import_module(f"circle_train.{name}")
    if name not in _HOMES:
        raise AttributeError(f"module 'circle_train' has no attribute '{name}'")
    found = globals()[name] = getattr(import_module(f"circle_train.{_HOMES[name]}"), name)
    return found


def __dir__() -> list[str]:
    """What completion offers."""
    return sorted([*__all__, "__version__"])
