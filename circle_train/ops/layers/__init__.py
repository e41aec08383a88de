"""Layers: convolutions, products, pools, normalisations, recurrences."""
