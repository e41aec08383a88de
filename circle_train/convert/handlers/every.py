"""Every handler: the modules of this package register theirs when they are imported, as they are here."""

from circle_train.brought import bring_all

bring_all("circle_train.convert.handlers")
