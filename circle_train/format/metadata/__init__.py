"""What a model file carries in its metadata entries."""
