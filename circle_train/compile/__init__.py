"""From a graph and a config to a program."""
