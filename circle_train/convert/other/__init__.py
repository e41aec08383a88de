"""Other converters, and who judges ours."""
