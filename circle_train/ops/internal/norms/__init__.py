"""Normalisations that no file holds: over rows, over a batch, and the statistics that run along."""
