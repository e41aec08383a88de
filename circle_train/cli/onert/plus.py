"""`circle-train plus`: print, write or remove the training settings that a model file carries (Circle+)."""

from __future__ import annotations

import argparse
import importlib
import json
import os
import re
import sys
from typing import Any

from circle_train.cli.runs.places import MODELS, refuse_bad_output
from circle_train.cli.settings import add_json, print_json, print_lines
from circle_train.errors import ConfigError
from circle_train.ir.mapped import require_file
from circle_train.model import Model, load
from circle_train.settings.as_json import from_dict, to_dict
from circle_train.settings.config import TrainConfig
from circle_train.settings.onert_json import from_onert_json, is_onert_json, to_onert_json

QUOTED = re.compile(r'"[^"\n]*"|\'[^\'\n]*\'')
DOTTED = re.compile(r"(?<![\w-])(?:[\w-]+[ \t]*\.[ \t]*){100}")
"""Python's reader takes minutes for a key of 50,000 parts."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("model", help="a .circle or .tflite file")
    parser.add_argument(
        "settings", nargs="?", help="settings to write: our JSON or TOML, or ONERT's JSON as it is"
    )
    parser.add_argument("out", nargs="?", help="where to write (default: the model itself)")
    parser.add_argument("--remove", action="store_true", help="take the settings away; OUT may follow MODEL")
    parser.add_argument("--onert", action="store_true", help="print in the words of ONERT's circle_plus_gen")
    add_json(parser)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    refuse_bad_output(options.settings if options.remove else options.out, MODELS[:2])
    model = load(options.model)
    if options.remove:
        if options.out is not None:
            raise ConfigError("--remove takes MODEL [OUT], no settings; leave one of the arguments out")
        out = options.settings or options.model
        model.with_training(None).save(out)
        return _say(options, out, "no training settings")
    if options.settings is None:
        return show(model, options)
    config = read_settings(options.settings)
    out = options.out or options.model
    model.with_training(config).save(out)
    return _say(options, out, f"training settings {json.dumps(to_dict(config))}")


def show(model: Model, options: argparse.Namespace) -> int:
    """Print what the model carries."""
    config = model.training
    if config is None:
        print_json(None) if options.json else print("No hyperparameters")
        return 0
    print_json(to_onert_json(config, len(model.operators)) if options.onert else to_dict(config))
    return 0


def read_settings(path: str) -> TrainConfig:
    """The config that a JSON or TOML file describes, in our words or ONERT's."""
    try:
        require_file(path)
        with open(path, encoding="utf-8") as file:
            text = file.read()
        settings = _parse_toml(text, path) if path.lower().endswith(".toml") else json.loads(text)
    except OSError as error:
        raise ConfigError(f"{path} cannot be read ({error.strerror}); give a JSON or TOML file") from None
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{path} is not valid ({error}); give a JSON or TOML file") from None
    if not isinstance(settings, dict):
        raise ConfigError(
            f"{path} holds a {type(settings).__name__}, expected an object with 'loss', 'optimizer', …"
        )
    where = os.path.basename(path)
    return from_onert_json(settings, where) if is_onert_json(settings) else from_dict(settings, where)


def _parse_toml(text: str, path: str) -> dict[str, Any]:
    if sys.version_info < (3, 11):
        raise ConfigError(f"{path}: reading TOML needs Python 3.11, this is 3.10; write the settings as JSON")
    if DOTTED.search(QUOTED.sub("q", text)):
        raise ValueError("a key of more than 100 parts")
    settings: dict[str, Any] = importlib.import_module("tomllib").loads(text)
    return settings


def _say(options: argparse.Namespace, out: str, what: str) -> int:
    if options.json:
        print_json({"file": out, "bytes": os.path.getsize(out)})
    else:
        print_lines([f"{out}: {what}"])
    return 0
