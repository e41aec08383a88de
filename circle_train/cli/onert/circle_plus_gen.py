"""ONERT's circle_plus_gen: print or write the training settings of a Circle file.

circle_plus_gen input.circle                           print what it carries
circle_plus_gen input.circle settings.json [out]       write settings, into the input itself without OUT
"""

from __future__ import annotations

import argparse
import json

import circle_train as ct
from circle_train.cli.onert.plus import read_settings
from circle_train.cli.runs.ending import ended
from circle_train.settings.onert_json import to_onert_json


def main(arguments: list[str] | None = None) -> int:
    """Exit status: 0 done, 1 a user's error, 2 wrong usage."""
    return ended(lambda: _run(arguments))


def _run(arguments: list[str] | None) -> None:
    parser = argparse.ArgumentParser(
        prog="circle_plus_gen", description="handle circle files with training hyperparameters (Circle+)"
    )
    parser.add_argument("input", help="input circle file")
    parser.add_argument("hyperparameters", nargs="?", help="training hyperparameters json file")
    parser.add_argument(
        "output", nargs="?", help="output circle file; if not given, the input is overwritten"
    )
    handle(parser.parse_args(arguments))


def handle(options: argparse.Namespace) -> None:
    """Print the settings, or write others."""
    model = ct.load(options.input)
    if options.hyperparameters is None:
        print(dump(model))
        return
    model = model.with_training(read_settings(options.hyperparameters))
    print("succesfully add hyperparameters to the circle file")
    print(dump(model))
    model.save(options.output or options.input)
    print(f"saved in {options.output or options.input}")


def dump(model: ct.Model) -> str:
    """The settings in ONERT's JSON."""
    config = model.training
    return (
        "No hyperparameters"
        if config is None
        else json.dumps(to_onert_json(config, len(model.operators)), indent=4)
    )
