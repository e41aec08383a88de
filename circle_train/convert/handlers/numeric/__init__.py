"""Handlers of functions of numbers, products and reductions."""
