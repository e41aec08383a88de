"""One client: a session, its data, what it remembers."""
