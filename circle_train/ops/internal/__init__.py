"""Operators that no file holds: what compiling adds to a graph."""
