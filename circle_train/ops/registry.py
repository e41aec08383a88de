"""Every operator: the modules of this package register theirs when they are imported, as they are here."""

from circle_train.brought import bring_all
from circle_train.ops.base import INTERNAL, REGISTRY

__all__ = ["INTERNAL", "REGISTRY"]
bring_all("circle_train.ops")
