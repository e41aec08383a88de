"""What watches a fit: `from circle_train.callbacks import EarlyStopping`."""

from circle_train.fitting import callbacks as _home
from circle_train.fitting.callbacks import *  # noqa: F403

__all__ = _home.__all__


def __dir__() -> list[str]:
    return sorted(__all__)
