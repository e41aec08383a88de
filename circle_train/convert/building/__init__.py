"""What handlers build Circle graphs with."""
