"""Binders of what moves elements: by index, by coordinates, in blocks."""
