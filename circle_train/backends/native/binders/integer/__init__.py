"""Operators on integers that stand for reals."""
