"""Integers with a scale: what they stand for, what rounds to them, what learns on them."""
