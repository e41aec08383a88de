"""All knowledge of one operator is one class; `registry` finds them all."""

from typing import TYPE_CHECKING

from circle_train.brought import brought

if TYPE_CHECKING:
    from circle_train.ops.base import Example as Example, Op as Op, register as register
    from circle_train.ops.registry import INTERNAL as INTERNAL, REGISTRY as REGISTRY

HOMES = {
    "base": ("Example", "Op", "register"),
    "registry": ("INTERNAL", "REGISTRY"),
}
__getattr__ = brought(__name__, HOMES)
