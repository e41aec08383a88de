"""Who may import whom; no cycles; no module that names nothing."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from circle_train.backends.native.engine import library
from circle_train.ops import INTERNAL, REGISTRY

PACKAGE = Path(__file__).resolve().parents[1] / "circle_train"
LEAVES = {"errors", "kinds", "likeness", "printable", "record"}
ORDERED = {("errors", "printable"), ("kinds", "errors"), ("record", "likeness")}
"""Leaves that import leaves."""
LAYERS = (
    {"ir"},
    {"ops"},
    {"format", "passes"},
    {"convert", "losses", "optimizers"},
    {"backends", "fitting"},
    {"settings"},
    {"compile"},
    {"data"},
    {"runtime"},
    {"checkpoints", "model"},
    {"session"},
    {"finetuning", "report"},
    {"__init__", "__version__"},
    {"cli"},
)
"""Rooms, lowest first: a room may import itself, the leaves and what lies in a layer below."""
FORBIDDEN_NAMES = {"utils", "helpers", "common", "misc", "util", "helper"}
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


def imports(path: Path) -> Iterator[tuple[str, ast.stmt]]:
    """Absolute names of what a module imports, but for type checking."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    for node in ast.walk(tree):
        if isinstance(node, ast.If) and ast.unparse(node.test).endswith("TYPE_CHECKING"):
            node.body = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((alias.name, node) for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            if node.module == "circle_train":
                yield from ((f"circle_train.{alias.name}", node) for alias in node.names)
            else:
                yield node.module, node


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


SPELLED = ("ops", "convert/handlers", "passes/litert")
"""Where operators are named one by one: their own classes, and what spells others out by them."""
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


def test_no_cycles_between_modules() -> None:
    graph = {}
    for path in modules():
        name = ".".join(("circle_train", *path.relative_to(PACKAGE).with_suffix("").parts)).removesuffix(
            ".__init__"
        )
        graph[name] = {target for target, node in imports(path) if node.col_offset == 0}
    done: set[str] = set()

    def visit(name: str, path: list[str]) -> None:
        assert name not in path, " → ".join([*path[path.index(name) :], name])
        if name in done:
            return
        for target in graph.get(name, ()):
            if target in graph and target != name and not name.startswith(f"{target}."):
                visit(target, [*path, name])
        done.add(name)

    for name in graph:
        visit(name, [])


def test_the_compiled_part_is_small() -> None:
    compiled = library.path()
    if compiled is None:
        pytest.skip("the native engine was not built")
    assert compiled.stat().st_size < 2_000_000
