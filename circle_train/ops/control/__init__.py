"""Branches, loops and variables."""
