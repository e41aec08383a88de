"""Elements that move: reshaped, picked, joined, cut, padded."""
