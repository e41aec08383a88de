"""Handlers of layers that slide windows, normalise, sample or recur."""
