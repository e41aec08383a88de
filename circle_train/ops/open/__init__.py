"""Operators of operands whose sizes are open: types and values as expressions of these sizes."""
