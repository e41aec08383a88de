"""Train .circle, .tflite and .onnx models where the data is, and get an inference file back.

Example:
    >>> import circle_train as ct
    >>> model = ct.load("tests/data/mlp.circle")
    >>> session = ct.TrainSession(model, ct.TrainConfig(loss="mse", optimizer="adam", trainable=("last", 1)))
"""

# All at once: time and memory of a session's first step are then its own, and no modules'.
from circle_train import callbacks, data, losses, metrics, optimizers, schedules
from circle_train.errors import (
    CheckpointError,
    CircleTrainError,
    ConfigError,
    ConversionError,
    DataError,
    ModelError,
    UnsupportedOpError,
)
from circle_train.finetuning import choose, finetune
from circle_train.model import Model, load
from circle_train.release import VERSION
from circle_train.session import InferenceSession, TrainSession
from circle_train.session.packages import make_artifacts
from circle_train.settings.config import TrainConfig
from circle_train.settings.quantization import Int8

__version__ = VERSION

__all__ = [
    "CheckpointError",
    "CircleTrainError",
    "ConfigError",
    "ConversionError",
    "DataError",
    "InferenceSession",
    "Int8",
    "Model",
    "ModelError",
    "TrainConfig",
    "TrainSession",
    "UnsupportedOpError",
    "callbacks",
    "choose",
    "data",
    "finetune",
    "load",
    "losses",
    "make_artifacts",
    "metrics",
    "optimizers",
    "schedules",
]


def __dir__() -> list[str]:
    """What completion offers."""
    return sorted([*__all__, "__version__"])
