"""Flatbuffers, checked before they are believed, and the schema's tables."""

from typing import TYPE_CHECKING

from circle_train.brought import MODULES, brought

if TYPE_CHECKING:
    from circle_train.format.flatbuffer import encode as encode

HOMES = {
    MODULES: ("encode",),
}
__getattr__ = brought(__name__, HOMES)
