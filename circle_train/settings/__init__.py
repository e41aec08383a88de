"""What is trained and how: the config, the ways in which files hold it, and the parameters that it means."""

from typing import TYPE_CHECKING

from circle_train.brought import MODULES, brought

if TYPE_CHECKING:
    from circle_train.settings import circleplus as circleplus

HOMES = {
    MODULES: ("circleplus",),
}
__getattr__ = brought(__name__, HOMES)
