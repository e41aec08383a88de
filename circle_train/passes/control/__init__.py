"""Branches, loops and variables, as far as they can be plain nodes."""
