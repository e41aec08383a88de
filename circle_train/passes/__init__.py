"""Graph -> graph, one stage a file; `pipelines` are lists of them."""
