"""The stages of a conversion, graph to graph."""
