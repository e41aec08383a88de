"""One small function per ONNX operator, by family; importing this package registers them all."""

import pkgutil
from importlib import import_module

for _module in pkgutil.walk_packages(__path__, f"{__name__}."):
    import_module(_module.name)
