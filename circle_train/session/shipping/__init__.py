"""A session's model in fewer bits."""
