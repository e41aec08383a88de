#!/usr/bin/env python3
"""Write the pages that the code knows best: docs/ops.md, docs/cli.md and docs/api.md.

python tools/dev/make_docs.py            write them
python tools/dev/make_docs.py --check    only say whether they are up to date
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

from making.api_page import api_page

from circle_train.cli.main import parser as command_line
from circle_train.compile.asked import REASONS
from circle_train.ops import REGISTRY, Op

DOCS = Path(__file__).resolve().parents[2] / "docs"


def operators_page() -> str:
    rows = [_row(name, op) for name, op in sorted(REGISTRY.items())]
    return "\n".join(
        [
            "# Operators",
            "",
            f"Written by `tools/dev/make_docs.py` from the {len(REGISTRY)} classes in `circle_train/ops/`. What is not",
            "in the table loads and survives saving, but cannot be computed. *Parameters* are the inputs that training",
            "changes when they are constants.",
            "",
            "| operator | inputs | gradients for | parameters |",
            "|---|---|---|---|",
            *rows,
            "",
            "LiteRT computes these besides:",
            "",
            *(f"* {name}: {why}." for name, why in REASONS.items()),
            "",
        ]
    )


def _row(name: str, op: type[Op]) -> str:
    inputs = ", ".join(_input(op, i) for i in range(len(op.inputs)))
    return f"| {name} | {inputs} | {_gradients(op)} | {', '.join(op.parameters) or '–'} |"


def _input(op: type[Op], index: int) -> str:
    spec = op.inputs[index]
    return f"{spec.name}…" if spec.variadic else f"[{spec.name}]" if spec.optional else spec.name


def _gradients(op: type[Op]) -> str:
    if op.stops_gradient:
        return "none: piecewise constant"
    return ", ".join(spec.name for spec in op.inputs if spec.name in op.gradients) or "none"


def command_line_page() -> str:
    os.environ["COLUMNS"] = "110"
    top = command_line()
    parts = ["# Command line", "", "Written by `tools/dev/make_docs.py` from the commands' own `--help`.", ""]
    parts += ["```text", top.format_help().rstrip(), "```", ""]
    return "\n".join([*parts, *_commands(top, "##")])


def _commands(parser: argparse.ArgumentParser, heading: str, before: str = "") -> list[str]:
    """What each command says of itself, and below it those that it has."""
    parts = []
    for chooser in (action for action in parser._actions if isinstance(action, argparse._SubParsersAction)):
        for name, command in chooser.choices.items():
            parts += [f"{heading} {before}{name}", "", "```text", command.format_help().rstrip(), "```", ""]
            parts += _commands(command, f"{heading}#", f"{before}{name} ")
    return parts


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--check", action="store_true")
    check = parser.parse_args().check
    stale = []
    pages = {"ops.md": operators_page(), "cli.md": command_line_page(), "api.md": api_page()}
    for name, text in pages.items():
        path = DOCS / name
        if check and (not path.exists() or path.read_text(encoding="utf-8") != text):
            stale.append(name)
        elif not check:
            path.write_text(text, encoding="utf-8")
    if stale:
        print(f"stale: {', '.join(stale)}; run python tools/dev/make_docs.py")
    return 1 if stale else 0


if __name__ == "__main__":
    sys.exit(main())
