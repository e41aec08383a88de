"""The way back: provenances in files, trained values into ONNX."""

from typing import TYPE_CHECKING

from circle_train.brought import MODULES, brought

if TYPE_CHECKING:
    from circle_train.convert.back import portable as portable

HOMES = {MODULES: ("portable",)}
ENTRY = "circle_train.onnx"
"""Under which name a package holds the provenance of its constants."""
__getattr__ = brought(__name__, HOMES)
