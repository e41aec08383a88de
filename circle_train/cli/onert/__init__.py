"""ONERT's tools: their names, flags and lines, over circle_train."""
