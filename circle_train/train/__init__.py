"""From a model and a config to a training program."""
