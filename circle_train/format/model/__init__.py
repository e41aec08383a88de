"""The model file: from bytes to a module, and back in mirror order."""
