"""What is measured over the data: `from circle_train.metrics import F1`."""

from circle_train.fitting import metrics as _home
from circle_train.fitting.metrics import *  # noqa: F403

__all__ = _home.__all__


def __dir__() -> list[str]:
    return sorted(__all__)
