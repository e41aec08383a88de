"""The server of a run: a strategy under watch, its replies, its file, its report."""
