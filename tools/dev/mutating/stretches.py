"""Where each stretch of the package's functions begins, and code that says when one is reached (see mutants.py).

A stretch is what runs from its first statement to its last unless something raises: the beginning of a body, of a branch, of
what follows a branch. Its name holds its first line instead of a number, so that it is found again when lines above it change.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator, Sequence
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from pathlib import Path
from types import CodeType, ModuleType
from typing import NamedTuple

Function = ast.FunctionDef | ast.AsyncFunctionDef
LEAVES_EARLY = (ast.If, ast.For, ast.While, ast.With, ast.Try, ast.Match)
"""What stands behind one of these need not be reached when it is."""
MARK = "__reached__"
PACKAGE = "circle_train"


class Stretch(NamedTuple):
    first: int
    last: int
    name: str
    """`room/file.py:Class.method` where a function begins, `room/file.py:Class.method: first line` further inside."""
    is_remembered: bool
    """In a function whose results are kept: who asks second does not reach it, and depends on it."""


def stretches(path: str, text: str) -> list[Stretch]:
    """Of a file, outer ones before those inside them."""
    return [stretch for stretch, _, _ in _found(path, text, ast.parse(text))]


def _found(path: str, text: str, tree: ast.Module) -> list[tuple[Stretch, list[ast.stmt], int]]:
    """With the statements among which each stretch begins, and where."""
    lines = text.splitlines()
    found: list[tuple[Stretch, list[ast.stmt], int]] = []

    def functions(scope: ast.AST, prefix: str) -> None:
        for node in ast.iter_child_nodes(scope):
            if isinstance(node, Function):
                statements(node.body, f"{prefix}{node.name}", _is_remembered(node), is_body=True)
                functions(node, f"{prefix}{node.name}.<locals>.")
            else:
                functions(node, f"{prefix}{node.name}." if isinstance(node, ast.ClassDef) else prefix)

    def statements(body: list[ast.stmt], name: str, is_remembered: bool, is_body: bool = False) -> None:
        starts = [0, *(i + 1 for i, s in enumerate(body[:-1]) if isinstance(s, LEAVES_EARLY))]
        for start, end in zip(starts, [*starts[1:], len(body)], strict=True):
            first, last = body[start].lineno, body[end - 1].end_lineno or 0
            inner = "" if is_body and not start else f": {lines[first - 1].strip()}"
            found.append((Stretch(first, last, f"{path}:{name}{inner}", is_remembered), body, start))
        for statement in body:
            for block in _blocks(statement):
                statements(block, name, is_remembered)

    functions(tree, "")
    return found


def _is_remembered(node: Function) -> bool:
    return any("cache" in ast.unparse(decorator) for decorator in node.decorator_list)


def _blocks(statement: ast.stmt) -> Iterator[list[ast.stmt]]:
    """What a statement runs or does not, but not what it only defines."""
    if isinstance(statement, LEAVES_EARLY):
        for part in ("body", "orelse", "finalbody"):
            if block := getattr(statement, part, None):
                yield block
        for case in (*getattr(statement, "handlers", ()), *getattr(statement, "cases", ())):
            yield case.body


def stretch_of(line: int, found: Sequence[Stretch]) -> Stretch | None:
    """The innermost around a line."""
    around = [stretch for stretch in found if stretch.first <= line <= stretch.last]
    return min(around, key=lambda stretch: (stretch.last - stretch.first, -stretch.first), default=None)


class Marked(SourceFileLoader):
    """Loads a module whose stretches call the mark with their numbers."""

    def __init__(self, loader: SourceFileLoader, numbers: dict[str, int], reached: set[int]) -> None:
        super().__init__(loader.name, loader.path)
        self.numbers = numbers
        self.reached = reached

    def get_code(self, fullname: str) -> CodeType:
        text = Path(self.path).read_text(encoding="utf-8")
        tree = ast.parse(text)
        path = self.path.rpartition(f"/{PACKAGE}/")[2]
        for stretch, body, start in reversed(_found(path, text, tree)):  # so that places in a body stay
            number = self.numbers.setdefault(stretch.name, len(self.numbers))
            first = body[start]
            is_text = isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant)
            mark = ast.parse(f"{MARK}({number})").body[0]
            for node in ast.walk(mark):
                ast.copy_location(node, first)
            body.insert(start + 1 if is_text else start, mark)
        return compile(tree, self.path, "exec", dont_inherit=True)

    def exec_module(self, module: ModuleType) -> None:
        vars(module)[MARK] = self.reached.add
        super().exec_module(module)


class Finder:
    """Finds the package's modules, to be loaded with marks."""

    def __init__(self) -> None:
        self.numbers: dict[str, int] = {}
        self.reached: set[int] = set()

    def find_spec(self, name: str, path: Sequence[str] | None, _: object = None) -> ModuleSpec | None:
        if name.partition(".")[0] != PACKAGE:
            return None
        spec = PathFinder.find_spec(name, path)
        if spec is not None and isinstance(spec.loader, SourceFileLoader):
            spec.loader = Marked(spec.loader, self.numbers, self.reached)
        return spec

    def install(self) -> None:
        sys.meta_path.insert(0, self)
