"""Whatever people hold their data in becomes batches of arrays."""

from circle_train.data import files, raw  # they register their readers with data.stored
from circle_train.data.arrays import table, windows
from circle_train.data.images import images
from circle_train.data.sounds import sounds
from circle_train.data.texts.text import text

__all__ = ["files", "images", "raw", "sounds", "table", "text", "windows"]


def __dir__() -> list[str]:
    """What completion offers."""
    return sorted(__all__)
