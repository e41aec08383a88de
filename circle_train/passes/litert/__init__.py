"""A graph as LiteRT takes it."""
