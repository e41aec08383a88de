"""Batched products where operands are turned, and attention, which is two of them around a softmax."""
