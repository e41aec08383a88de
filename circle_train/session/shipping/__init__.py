"""A session's model in fewer bits."""

from typing import TYPE_CHECKING

from circle_train.brought import MODULES, brought

if TYPE_CHECKING:
    from circle_train.session.shipping import (
        into_onnx as into_onnx,
        judging as judging,
        rescaled as rescaled,
        ship as ship,
    )

HOMES = {
    MODULES: ("into_onnx", "judging", "rescaled", "ship"),
}
__getattr__ = brought(__name__, HOMES)
