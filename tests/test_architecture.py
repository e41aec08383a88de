"""Who may import whom; no cycles; no module that names nothing."""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from functools import cache
from importlib import import_module
from pathlib import Path

import pytest

from circle_train.backends.native.engine import library
from circle_train.brought import MODULES
from circle_train.ops import INTERNAL, REGISTRY

PACKAGE = Path(__file__).resolve().parents[1] / "circle_train"
LEAVES = {
    "available",
    "brought",
    "errors",
    "kinds",
    "likeness",
    "printable",
    "record",
    "release",
    "uncollected",
}
ORDERED = {("errors", "printable"), ("kinds", "errors"), ("record", "likeness")}
"""Leaves that import leaves."""
LAYERS = (
    {"ir"},
    {"ops"},
    {"format", "passes"},
    {"convert", "losses", "optimizers"},
    {"backends", "fitting", "info"},
    {"settings"},
    {"quantize"},
    {"compile"},
    {"data"},
    {"runtime"},
    {"checkpoints", "model"},
    {"report"},
    {"session"},
    {"finetuning"},
    {"callbacks", "metrics", "schedules"},
    {"__init__", "__version__"},
    {"federated"},
    {"cli"},
    {"__main__"},
)
"""Rooms, lowest first: a room may import itself, the leaves and what lies in a layer below."""
FORBIDDEN_NAMES = {"utils", "helpers", "common", "misc", "util", "helper"}
LARGEST_ROOM = 15
"""Modules in a folder."""
LONGEST_READING = 1800
"""Lines of a reading list: what a person reads in an hour."""
TESTED_IN = {"data": "datasets"}
"""Where tests/ has another room of the name: tests/data holds files."""
OPTIONAL = {
    "onnx",
    "flwr",
    "matplotlib",
    "tensorboardX",
    "PIL",
    "onnxruntime",
    "torch",
    "tomllib",
    "tomli",
    "tokenizers",
}


def modules() -> list[Path]:
    return sorted(PACKAGE.rglob("*.py"))


def owner(path: Path) -> str:
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def name_of(path: Path) -> str:
    """A module as it is imported; a package by its folder."""
    return ".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts).removesuffix(".__init__")


KNOWN = {name_of(path): path for path in modules()}


@cache
def offered(package: str) -> dict[str, str]:
    """By each name that a package brings when it is asked for it, the module that it then imports."""
    homes = getattr(import_module(package), "HOMES", {}) if KNOWN[package].name == "__init__.py" else {}
    return {
        name: f"{package}.{name if home == MODULES else home}"
        for home, names in homes.items()
        for name in names
    }


def imports(path: Path, at_import: bool = False) -> Iterator[tuple[str, ast.stmt]]:
    """What a module imports, down to modules; `at_import`: only what runs when it is imported itself."""
    waiting: list[ast.AST] = [ast.parse(path.read_text(encoding="utf-8"))]
    while waiting:
        node = waiting.pop()
        if at_import and isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            continue
        if at_import and isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            continue
        if isinstance(node, ast.Import):
            yield from ((alias.name, node) for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                full = f"{node.module}.{alias.name}"
                if node.module in KNOWN and alias.name in offered(node.module):
                    yield offered(node.module)[alias.name], node
                yield full if full in KNOWN or node.module == "circle_train" else node.module, node
        waiting.extend(ast.iter_child_nodes(node))


@cache
def edges() -> dict[str, set[str]]:
    """Which modules of ours each module imports when it is imported, the packages that it stands in included.

    But for the first of all: who imports `circle_train` in two threads at once, and a module of it in one, is on his own.
    """
    found = {}
    for name, path in KNOWN.items():
        others = {other for other, _ in imports(path, at_import=True) if other in KNOWN}
        found[name] = (others | {name.rpartition(".")[0]}) - {name, "circle_train", ""}
    return found


def layer(room: str) -> int:
    """Leaves lie below every layer."""
    return -1 if room in LEAVES else next(i for i, rooms in enumerate(LAYERS) if room in rooms)


@pytest.mark.parametrize("path", modules(), ids=lambda path: str(path.relative_to(PACKAGE)))
def test_imports_follow_the_rule(path: Path) -> None:
    me = owner(path)
    for name, node in imports(path):
        if name.startswith("circle_train."):
            other = name.split(".")[1]
            where = f"{path.relative_to(PACKAGE)}:{node.lineno} imports {name}"
            assert other == me or layer(other) < layer(me) or (me, other) in ORDERED, where


@pytest.mark.parametrize("path", modules(), ids=lambda path: str(path.relative_to(PACKAGE)))
def test_heavy_packages_are_imported_where_used(path: Path) -> None:
    if owner(path) in ("convert", "federated", "report"):
        return
    tree = ast.parse(path.read_text(encoding="utf-8"))
    for node in tree.body:
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            text = ast.unparse(node)
            roots = {part.split(".")[0] for part in text.replace(",", " ").split()}
            assert not roots & OPTIONAL, f"{path.relative_to(PACKAGE)}:{node.lineno} {text}"


def test_no_module_without_a_concept() -> None:
    stems = {path.stem for path in modules()}
    assert not stems & FORBIDDEN_NAMES


SPELLED = ("ops", "convert/handlers")
"""Where operators are named one by one: their own classes, and what spells ONNX out by them."""
GENERATED = {"schema.py", "abi.py"}


def test_few_places_know_operators_by_name() -> None:
    """Counted: string constants that are the name of a registered operator."""
    known = {*REGISTRY, *INTERNAL}
    found = Counter(
        str(path.relative_to(PACKAGE))
        for path in modules()
        if path.name not in GENERATED and not any(path.is_relative_to(PACKAGE / room) for room in SPELLED)
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Constant) and node.value in known
    )
    assert found.total() < 200, found.most_common(8)


def test_what_files_hold_is_all_that_is_carried() -> None:
    """What rooms tell each other of a tensor, a node or a graph is typed; `carried` is for the reader and the writer."""
    writes = re.compile(r"\.carried(\[[^\]]+\]\)? =|\.setdefault)|carried=\{\"")
    found = {
        str(path.relative_to(PACKAGE)): lines
        for path in modules()
        if owner(path) != "format" and (lines := writes.findall(path.read_text(encoding="utf-8")))
    }
    assert found == {}


def test_types_are_imported_as_they_are() -> None:
    """TYPE_CHECKING would hide an import from the rule; `record` needs it for a name that has no run-time home, and packages
    for what they bring when it is asked for (tests/test_public.py compares)."""
    hidden = {name_of(path) for path in modules() if "if TYPE_CHECKING" in path.read_text(encoding="utf-8")}
    assert {name for name in hidden if not offered(name)} == {"circle_train.record"}


def require_no_cycle(graph: Mapping[str, Collection[str]]) -> None:
    done: set[str] = set()

    def visit(name: str, path: list[str]) -> None:
        assert name not in path, " → ".join([*path[path.index(name) :], name])
        if name not in done:
            for target in sorted(graph.get(name, ())):
                visit(target, [*path, name])
        done.add(name)

    for name in graph:
        visit(name, [])


def test_no_cycles_between_modules() -> None:
    """Neither does a package import what stands in it: two threads that begin with either would wait for each other."""
    require_no_cycle(edges())


@pytest.mark.parametrize("folder", [n for n, path in KNOWN.items() if path.name == "__init__.py"])
def test_no_cycles_between_what_stands_in_one_folder(folder: str) -> None:
    inside = f"{folder}."
    graph: dict[str, set[str]] = {}
    for name, targets in edges().items():
        if name.startswith(inside):
            child = name.removeprefix(inside).split(".")[0]
            others = {t.removeprefix(inside).split(".")[0] for t in targets if t.startswith(inside)}
            graph.setdefault(child, set()).update(others - {child})
    require_no_cycle(graph)


def test_a_cycle_is_seen() -> None:
    with pytest.raises(AssertionError, match="a → b → a"):
        require_no_cycle({"a": {"b"}, "b": {"a"}})


def test_rooms_are_no_piles() -> None:
    found = Counter(
        path.parent
        for top in (PACKAGE, PACKAGE.parent / "tests")
        for path in top.rglob("*")
        if path.suffix in (".py", ".cpp", ".h") and path.name != "__init__.py"
    )
    assert {str(folder): count for folder, count in found.items() if count > LARGEST_ROOM} == {}


def test_every_room_has_its_tests() -> None:
    """A room's tests stand in a room of its name."""
    rooms = {path.parent.name for path in PACKAGE.glob("*/__init__.py")}
    rooms = {TESTED_IN.get(room, room) for room in rooms}
    tested = {path.parent.name for path in (PACKAGE.parent / "tests").glob("*/test_*.py")}
    assert rooms <= tested, f"no tests for {rooms - tested}"


READING = re.compile(r"`((?:circle_train/)?[\w/]+\.(?:py|h|cpp))`")


def reading_lists() -> dict[str, list[Path]]:
    """Under each heading of docs/architecture.md, the files that its table lists."""
    text = (PACKAGE.parent / "docs/architecture.md").read_text(encoding="utf-8")
    found = {}
    for part in re.split(r"^#+ ", text, flags=re.MULTILINE)[1:]:
        rows = [line.split("|")[1] for line in part.splitlines() if line.startswith("| `")]
        if rows:
            heading = part.splitlines()[0]
            found[heading] = [PACKAGE / name for row in rows for name in READING.findall(row)]
    return found


@pytest.mark.parametrize("heading", ["Architecture: an hour's reading", "The converter", "The engine"])
def test_an_hours_reading_is_an_hour(heading: str) -> None:
    files = reading_lists()[heading]
    lines = sum(len(path.read_text(encoding="utf-8").splitlines()) for path in files)
    assert len(files) >= 5
    assert lines <= LONGEST_READING, f"{heading}: {lines} lines"


def test_no_run_leaves_its_files_at_the_top() -> None:
    """A checkpoint once lay there, and was committed: a path had been taken for another argument, and the default written."""
    top = PACKAGE.parent
    left = [
        f.name for f in top.iterdir() if f.suffix in (".safetensors", ".ckpt", ".circle", ".tflite", ".onnx")
    ]
    assert not left, f"{left}: what wrote these is to write elsewhere"


def test_the_compiled_part_is_small() -> None:
    compiled = library.path()
    if compiled is None:
        pytest.skip("the native engine was not built")
    assert Path(compiled).stat().st_size < 2_600_000
