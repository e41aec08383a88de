"""`circle-train federate`: write an app for Flower; run it here, in a simulation or on SuperNodes."""

from __future__ import annotations

import argparse

from circle_train.cli.federate.launch import deploy, simulate
from circle_train.cli.settings import positive, print_lines
from circle_train.federated.new_app import new_app


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.description = "Write a folder that `flwr run` takes, and run it without reaching for the network."
    kinds = parser.add_subparsers(title="what", metavar="WHAT", required=True, help="what to do")
    new = kinds.add_parser("new", help="write a ready app", description="Write an app that runs at once.")
    new.add_argument("folder", metavar="DIR", help="the app's folder, which is made")
    new.set_defaults(run=lambda options: _new(options.folder))
    for name, work, what in (
        ("run", simulate, "run an app in Flower's simulation (Ray), and end its daemon"),
        ("deploy", deploy, "run an app on a SuperLink and SuperNodes on loopback, and end them"),
    ):
        one = kinds.add_parser(name, help=what, description=f"{what[0].upper()}{what[1:]}.")
        one.add_argument("folder", metavar="DIR", help="the app's folder")
        one.add_argument(
            "--clients", type=positive, default=2, metavar="N", help="how many (default: %(default)s)"
        )
        one.add_argument(
            "--run-config", default="", metavar="SETTINGS", help="as of `flwr run`: 'num-server-rounds=5'"
        )
        one.set_defaults(
            run=lambda options, work=work: work(options.folder, options.clients, options.run_config)
        )


def _new(folder: str) -> int:
    path = new_app(folder)
    print_lines(
        [
            f"wrote {path}: fleet/task.py says what is learned, from what",
            f"next: circle-train federate run {folder} --clients 10",
        ]
    )
    return 0
