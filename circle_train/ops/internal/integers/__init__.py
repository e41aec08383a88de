"""Operators on integers with a scale, and on what is rounded as they are."""
