"""Mistakes at random places, by a seed, and the tests that should notice them (see mutants.py)."""

from __future__ import annotations

import ast
import random
import re
from collections.abc import Sequence
from functools import cache
from pathlib import Path

from mutating.picked import KERNELS, Mutant

ROOT = Path(__file__).resolve().parents[3]
SOURCES = ROOT / "circle_train/backends/native/kernels"
EXTENTS = "tests/backends/kernels/test_extents.py"
ROOMS = {"data": "datasets", "circle_train": ""}
"""Rooms whose tests stand elsewhere."""
SLIPS = (
    (" + ", " - "),
    (" - ", " + "),
    (" * ", " / "),
    (" < ", " <= "),
    (" <= ", " < "),
    (" == ", " != "),
    (" and ", " or "),
    (" or ", " and "),
    ("if not ", "if "),
    ("True", "False"),
    ("False", "True"),
    (" max(", " min("),
    (" min(", " max("),
    ("[0]", "[-1]"),
    (" is None", " is not None"),
    (" any(", " all("),
    (" all(", " any("),
    (" // ", " * "),
)
"""What somebody may write by mistake."""


def slips(
    seed: int, count: int, kernels: bool, within: Sequence[str] = ("",), root: Path = ROOT
) -> list[Mutant]:
    """Mistakes at random places of the package, or of some folders; the room's own tests should notice."""
    rng = random.Random(seed)
    package = root / "circle_train"
    generated = {"schema.py", "abi.py"}
    pattern = "*.cpp" if kernels else "*.py"
    paths = sorted({path for folder in within for path in (package / folder).rglob(pattern)})
    files = [path for path in paths if path.name not in generated]
    found: list[Mutant] = []
    lines_of = {path: _code(path) for path in files}
    while len(found) < count:
        path = rng.choices(files, [len(lines_of[path]) for path in files])[0]
        text = path.read_text(encoding="utf-8")
        line = rng.choice(lines_of[path])
        old, new = rng.choice(SLIPS[:-1] if kernels else SLIPS)
        if old in line.replace("strict=True", "") and text.count(line) == 1:
            where = path.relative_to(package)
            what = f"{where}: {line.strip()} [{old.strip()} → {new.strip()}]"
            mutant = Mutant(what, str(where), line, line.replace(old, new, 1), tests_of_room(where))
            found += [] if mutant in found else [mutant]
    return found


def _code(path: Path) -> list[str]:
    """The lines that are neither text, nor found by being read, nor what tests are given. Left out in slips too:
    `strict=True`, which only watches over lengths that never differ."""
    lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
    text: set[int] = set()
    if path.suffix == ".py":
        for node in ast.walk(ast.parse("".join(lines))):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                text |= {*range(node.lineno, (node.end_lineno or 0) + 1)}
            if isinstance(node, ast.FunctionDef) and node.name in ("examples", "settings"):
                text |= {*range(node.lineno, (node.end_lineno or 0) + 1)}
    skipped = ("#", "//", "from ", "import ", "@", "raise", "template", "static_assert")
    return [
        line for n, line in enumerate(lines, 1) if n not in text and not line.lstrip().startswith(skipped)
    ]


def tests_of_room(path: Path) -> tuple[str, ...]:
    if path.suffix == ".cpp":
        return tests_of_kernels(path)
    room = path.parts[0].removesuffix(".py")
    places = (f"tests/{ROOMS.get(room, room)}", f"tests/test_{room}.py", "tests/session")
    place = next(place for place in places if (ROOT / place).exists())
    return (place, "tests/session/test_session.py")


def tests_of_kernels(path: Path) -> tuple[str, ...]:
    """Every kernel that a file is part of at its extents, then the files of tests that name one, then all of them."""
    names = kernels_of(ROOT / "circle_train" / path)
    if not names:
        return KERNELS
    places = sorted((ROOT / "tests/backends").rglob("test_*.py"))
    naming = [
        place for place in places if names & set(re.findall(r"\b[A-Z0-9_]{3,}\b", place.read_text("utf-8")))
    ]
    files = [str(place.relative_to(ROOT)) for place in naming]
    extents = [f"{EXTENTS}::test_extents -k {' or '.join(sorted(names))}"] if EXTENTS in files else []
    return (*extents, *(file for file in files if file != EXTENTS), "tests/backends/test_backends.py")


def kernels_of(path: Path) -> set[str]:
    """Names of the kernels that are run by functions of a file, or of one that includes its header, and so on."""
    header = (SOURCES / "run/abi.h").read_text(encoding="utf-8")
    functions = {run: name for name, run in re.findall(r"^  X\((\w+), (\w+),", header, re.MULTILINE)}
    waiting, seen = [path], {path}
    while waiting:
        own = waiting.pop()
        mine = {own, own.with_suffix(".h")}
        included, defined = sources().get(own, (set(), set()))
        if not defined and own.suffix == ".cpp":  # what headers of its folder declare
            mine |= {header for header in included if header.parent == own.parent}
        for other, (included, _) in sources().items():
            if other not in seen and (included & mine or (other == own.with_suffix(".cpp"))):
                seen.add(other)
                waiting.append(other)
    run = {name for file in seen if file in sources() for name in sources()[file][1]}
    return {functions[name] for name in run & set(functions)}


@cache
def sources() -> dict[Path, tuple[set[Path], set[str]]]:
    """Of each file the headers of ours that it includes, and the functions with a kernel's type that it defines."""
    found = {}
    for path in sorted((*SOURCES.rglob("*.cpp"), *SOURCES.rglob("*.h"))):
        text = path.read_text(encoding="utf-8")
        included = {SOURCES / name for name in re.findall(r'^#include "([\w/]+\.h)"', text, re.MULTILINE)}
        found[path] = included, set(re.findall(r"^int32_t (\w+)\(Context&", text, re.MULTILINE))
    return found
