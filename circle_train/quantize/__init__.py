"""Models of floats as models of integers: scales from what samples give, and the operators as LiteRT computes them."""
