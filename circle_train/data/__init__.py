"""Whatever people hold their data in becomes batches of arrays."""

from circle_train.data import files, raw  # they register their readers with data.dataset

__all__ = ["files", "raw"]
