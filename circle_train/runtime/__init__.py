"""Programs bound to memory and run: what lives during a step, from step to step, and for a whole fit."""

from typing import TYPE_CHECKING

from circle_train.brought import MODULES, brought

if TYPE_CHECKING:
    from circle_train.runtime import litert as litert

HOMES = {
    MODULES: ("litert",),
}
__getattr__ = brought(__name__, HOMES)
