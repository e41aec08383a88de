"""Programs bound to memory and run: what lives during a step, from step to step, and for a whole fit."""
