"""Training under way as files: ours, ONERT's, ONNX Runtime's."""

from typing import TYPE_CHECKING

from circle_train.brought import MODULES, brought

if TYPE_CHECKING:
    from circle_train.checkpoints import by_suffix as by_suffix

HOMES = {
    MODULES: ("by_suffix",),
}
__getattr__ = brought(__name__, HOMES)
