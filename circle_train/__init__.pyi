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
from circle_train.finetuning import finetune
from circle_train.model import Model, load
from circle_train.session import InferenceSession, TrainSession
from circle_train.session.packages import make_artifacts
from circle_train.settings.config import TrainConfig

__version__: str

__all__ = [
    "CheckpointError",
    "CircleTrainError",
    "ConfigError",
    "ConversionError",
    "DataError",
    "InferenceSession",
    "Model",
    "ModelError",
    "TrainConfig",
    "TrainSession",
    "UnsupportedOpError",
    "callbacks",
    "data",
    "finetune",
    "load",
    "losses",
    "make_artifacts",
    "metrics",
    "optimizers",
    "schedules",
]
