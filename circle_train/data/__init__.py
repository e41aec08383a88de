"""Whatever people hold their data in becomes batches of arrays."""

from typing import TYPE_CHECKING

from circle_train.brought import MODULES, brought

if TYPE_CHECKING:
    from circle_train.data import files, raw
    from circle_train.data.arrays import table, windows
    from circle_train.data.pictures import images
    from circle_train.data.recordings import sounds
    from circle_train.data.texts.text import text

__all__ = [
    "files",
    "images",
    "raw",
    "sounds",
    "table",
    "text",
    "windows",
]

HOMES = {
    MODULES: ("files", "raw"),
    "arrays": ("table", "windows"),
    "pictures": ("images",),
    "recordings": ("sounds",),
    "texts.text": ("text",),
}
__getattr__ = brought(__name__, HOMES)


def __dir__() -> list[str]:
    """What completion offers."""
    return sorted(__all__)
