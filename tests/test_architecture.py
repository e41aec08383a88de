"""Who may import whom; no cycles; no module that names nothing."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from circle_train.backends.native.engine import library

PACKAGE = Path(__file__).resolve().parents[1] / "circle_train"
OUTER = {"session", "cli", "federated", "report", "fit", "inference", "export", "plan", "model"}
MAY_IMPORT = {
    "printable": set(),
    "errors": {"printable"},
    "record": set(),
    "ir": {"errors", "printable", "record"},
    "ops": {"ir", "errors", "printable", "record"},
    "format": {"ir", "ops", "errors", "printable", "record"},
    "passes": {"ir", "ops", "errors", "printable", "record"},
    "convert": {"ir", "ops", "passes", "format", "errors", "printable", "record"},
    "train": {"ir", "ops", "passes", "format", "errors", "printable", "record"},
    "backends": {"ir", "ops", "passes", "train", "errors", "printable", "record"},
    "executor": {"ir", "train", "backends", "errors", "printable", "record"},
}
"""A package may import itself and these; what is not listed is outside and may import all but the command line."""
FORBIDDEN_NAMES = {"utils", "helpers", "common", "misc", "util", "helper"}
OPTIONAL = {"onnx", "flwr", "matplotlib", "tensorboardX", "PIL", "onnxruntime", "torch", "tomllib", "tomli"}


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


@pytest.mark.parametrize("path", modules(), ids=lambda path: str(path.relative_to(PACKAGE)))
def test_imports_follow_the_rule(path: Path) -> None:
    me = owner(path)
    for name, node in imports(path):
        if not name.startswith("circle_train."):
            continue
        other = name.split(".")[1]
        allowed = MAY_IMPORT.get(me)
        where = f"{path.relative_to(PACKAGE)}:{node.lineno} imports {name}"
        if allowed is not None:
            assert other == me or other in allowed, f"{where}; {me} may import {sorted(allowed)}"
        else:
            assert other != "cli" or me == "cli", where


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
