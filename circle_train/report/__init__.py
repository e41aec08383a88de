"""What is told of models and trainings: plans, curves, tables of errors, and one page with all of it."""

from typing import TYPE_CHECKING

from circle_train.brought import MODULES, brought

if TYPE_CHECKING:
    from circle_train.report import page as page, plan as plan

HOMES = {
    MODULES: ("page", "plan"),
}
__getattr__ = brought(__name__, HOMES)
