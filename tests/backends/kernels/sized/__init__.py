"""Every kernel as a call of given extents."""
