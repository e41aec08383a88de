"""Handlers of operators that only move elements, and of shapes, sequences and branches."""
