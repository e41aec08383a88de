"""C++ kernels behind a flat C ABI, compiled when the package is installed."""

from typing import TYPE_CHECKING

from circle_train.brought import brought

if TYPE_CHECKING:
    from circle_train.backends.native.backend import Native as Native, is_available as is_available

HOMES = {
    "backend": ("Native", "is_available"),
}
__getattr__ = brought(__name__, HOMES)
