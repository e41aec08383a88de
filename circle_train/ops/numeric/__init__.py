"""Functions of numbers, choices, reductions, and what numbers are stored as."""
