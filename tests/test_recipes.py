"""The recipes of docs/contributing.md, replayed: what they add is added to a copy of the tree, and its tests run there."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs/contributing.md"
MOST_EDITED = 2
"""Existing files that a recipe may touch, written by hand."""
STEP = re.compile(
    r"^`([^`]+)`[^\n]*:\n\n<!-- not run: [^>]+-->\n```(\w+)\n(.*?)^```", re.MULTILINE | re.DOTALL
)
COMMANDS = re.compile(r"<!-- not run: replayed[^>]*-->\n```sh\n(.*?)^```", re.MULTILINE | re.DOTALL)


@dataclass
class Recipe:
    """What a section says: files that are new, lines that change, and what is run then."""

    new: dict[str, str] = field(default_factory=dict)
    changed: dict[str, str] = field(default_factory=dict)
    commands: list[str] = field(default_factory=list)


def recipes() -> dict[str, Recipe]:
    text = PAGE.read_text(encoding="utf-8").partition("## Recipes\n")[2].partition("\n## ")[0]
    found = {}
    for section in text.split("\n### ")[1:]:
        heading, _, body = section.partition("\n")
        recipe = Recipe(commands=[line for block in COMMANDS.findall(body) for line in block.splitlines()])
        for path, language, code in STEP.findall(body):
            (recipe.changed if language == "diff" else recipe.new)[path] = code
        found[heading] = recipe
    return found


RECIPES = recipes()


def change(text: str, diff: str) -> str:
    """The text with the lines that begin with - replaced by those that begin with +, hunk by hunk."""
    for hunk in diff.split("@@\n"):
        old, new = ("".join(line[2:] for line in hunk.splitlines(True) if line[0] == sign) for sign in "-+")
        assert text.count(old) == 1, f"{old!r} stands {text.count(old)} times in the file"
        text = text.replace(old, new)
    return text


def follow(recipe: Recipe, tree: Path) -> None:
    """The recipe, in a copy of the tree."""
    for folder in ("circle_train", "tests", "tools", "docs"):
        shutil.copytree(ROOT / folder, tree / folder, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", tree)
    for path, code in recipe.new.items():
        assert not (tree / path).exists()
        (tree / path).write_text(code, encoding="utf-8")
    for path, diff in recipe.changed.items():
        (tree / path).write_text(change((tree / path).read_text(encoding="utf-8"), diff), encoding="utf-8")
    environment = {**os.environ, "PYTHONPATH": str(tree), "PYTHONDONTWRITEBYTECODE": "1"}
    environment["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    for command in recipe.commands:
        done = subprocess.run(
            command, shell=True, cwd=tree, env=environment, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, f"{command}\n{done.stdout[-3000:]}{done.stderr[-3000:]}"


def test_there_is_a_recipe_for_all_that_is_added_often() -> None:
    assert list(RECIPES) == ["An operator", "An optimizer", "An ONNX handler", "A command", "A kernel"]
    for recipe in RECIPES.values():
        assert recipe.commands and recipe.new
        assert len(recipe.changed) <= MOST_EDITED


BUILDS = [pytest.mark.slow(seconds=60), pytest.mark.xdist_group("builds")]
"""One after the other, whatever else runs beside."""


@pytest.mark.parametrize("name", [pytest.param(n, marks=BUILDS if n == "A kernel" else []) for n in RECIPES])
def test_a_recipe_works(name: str, tmp_path: Path) -> None:
    if name == "A kernel" and shutil.which("cmake") is None:
        pytest.skip("there is no cmake to build the kernel with")
    follow(RECIPES[name], tmp_path)
