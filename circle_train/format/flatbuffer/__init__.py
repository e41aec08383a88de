"""Flatbuffers, checked before they are believed, and the schema's tables."""
