"""Train .circle, .tflite and .onnx models where the data is, and get an inference file back.

Example:
    >>> import circle_train as ct
    >>> model = ct.load("tests/data/mlp.circle")
    >>> session = ct.TrainSession(model, ct.TrainConfig(loss="mse", optimizer="adam", trainable=("last", 1)))
"""

from typing import TYPE_CHECKING

from circle_train.brought import MODULES, brought
from circle_train.uncollected import uncollected

# At once what a training step needs: its time and memory are then its own, and no modules'. The rest when it is asked for.
with uncollected():  # nothing of it goes away
    from circle_train.errors import (
        CheckpointError,
        CircleTrainError,
        ConfigError,
        ConversionError,
        DataError,
        ModelError,
        UnsupportedOpError,
    )
    from circle_train.model import Model, load
    from circle_train.release import VERSION
    from circle_train.session.inference import InferenceSession
    from circle_train.session.train_session import TrainSession
    from circle_train.settings.config import TrainConfig
    from circle_train.settings.quantization import Int8

if TYPE_CHECKING:
    from circle_train import callbacks, data, losses, metrics, optimizers, schedules
    from circle_train.finetuning.choosing.choose import choose
    from circle_train.finetuning.finetune import finetune
    from circle_train.session.packages import make_artifacts

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

HOMES = {
    MODULES: ("callbacks", "data", "losses", "metrics", "optimizers", "schedules"),
    "finetuning.choosing.choose": ("choose",),
    "finetuning.finetune": ("finetune",),
    "session.packages": ("make_artifacts",),
}
__getattr__ = brought(__name__, HOMES)


def __dir__() -> list[str]:
    """What completion offers."""
    return sorted([*__all__, "__version__"])
