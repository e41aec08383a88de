"""Programs that keep within a budget of memory."""
