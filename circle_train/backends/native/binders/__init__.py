"""Which kernel computes what, by family."""
