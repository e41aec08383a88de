"""From a graph and a config to a program, and what training needs around it."""

from circle_train.train import datafiles, rawfiles  # registers their readers with train.data

__all__ = ["datafiles", "rawfiles"]
