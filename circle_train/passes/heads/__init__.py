"""The last operators of a model made anew: in float, or as another classifier."""
