"""All knowledge of one operator is one class; the modules of this package register theirs when it is imported."""

import pkgutil
from importlib import import_module

from circle_train.ops.base import INTERNAL, REGISTRY, Example, Op, register

for _module in pkgutil.walk_packages(__path__, f"{__name__}."):
    import_module(_module.name)

__all__ = ["INTERNAL", "REGISTRY", "Example", "Op", "register"]
