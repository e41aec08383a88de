"""Whatever people hold their data in becomes batches of arrays."""

from circle_train.data import files, raw  # they register their readers with data.dataset
from circle_train.data.images import images

__all__ = ["files", "images", "raw"]
