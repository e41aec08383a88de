"""Model files: .circle and .tflite to ir.Module and back."""

from circle_train.format.model.reader import read
from circle_train.format.model.writer import save, with_buffers, write

__all__ = ["read", "save", "with_buffers", "write"]
