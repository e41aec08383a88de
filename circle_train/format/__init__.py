"""Model files: .circle and .tflite to ir.Module and back."""

from typing import TYPE_CHECKING

from circle_train.brought import brought

if TYPE_CHECKING:
    from circle_train.format.model.reader import read as read
    from circle_train.format.model.writer import save as save, with_buffers as with_buffers, write as write

HOMES = {
    "model.reader": ("read",),
    "model.writer": ("save", "with_buffers", "write"),
}
__getattr__ = brought(__name__, HOMES)
