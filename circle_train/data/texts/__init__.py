"""Sentences as numbers, and who cuts them into words."""
