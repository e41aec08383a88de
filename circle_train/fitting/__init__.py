"""Whole data sets: the course of a fit, who is told of it, and what is measured."""

from typing import TYPE_CHECKING

from circle_train.brought import MODULES, brought

if TYPE_CHECKING:
    from circle_train.fitting import course as course

HOMES = {
    MODULES: ("course",),
}
__getattr__ = brought(__name__, HOMES)
