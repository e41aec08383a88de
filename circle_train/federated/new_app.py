"""A folder that Flower runs: `flwr run DIR` at once, to be changed afterwards."""

from __future__ import annotations

import json
import os
import re
from importlib.resources import files
from pathlib import Path

from circle_train.errors import ConfigError
from circle_train.format.atomic import make_folder, write_text

TEMPLATE = {
    "pyproject.toml": "pyproject.txt",
    "README.md": "readme.txt",
    "fleet/__init__.py": "package.txt",
    "fleet/task.py": "task.txt",
    "fleet/client_app.py": "client_app.txt",
    "fleet/server_app.py": "server_app.txt",
}
"""Files of an app, and what they are made of."""


def new_app(folder: str | os.PathLike[str]) -> Path:
    """Write an app that teaches ten digits to a network that knows five; refused where one is already."""
    path = Path(folder).absolute()
    taken = [name for name in TEMPLATE if (path / name).exists()]
    if taken:
        raise ConfigError(f"{folder}: {taken[0]} is there already; choose another folder")
    name = re.sub(r"[^a-z0-9]+", "-", path.name.lower()).strip("-") or "fleet"
    known = {"@NAME@": name, "@RUN@": json.dumps(str(path / "run")), "@FOLDER@": os.fspath(folder)}
    make_folder(path / "fleet", "app folder")
    for target, source in TEMPLATE.items():
        text = (files("circle_train.federated") / "template" / source).read_text(encoding="utf-8")
        for mark, value in known.items():
            text = text.replace(mark, value)
        write_text(path / target, text)
    return path
