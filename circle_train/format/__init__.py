"""Model files: .circle and .tflite to ir.Module and back."""

from circle_train.format.reader import read

__all__ = ["read"]
