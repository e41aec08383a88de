"""docs/api.md: every public name, its arguments and what its docstring says."""

from __future__ import annotations

import ast
import inspect
import textwrap
from enum import Enum
from types import ModuleType
from typing import Any

import circle_train as ct

HEAD = """\
# Python

Written by `tools/dev/make_docs.py` from the signatures and docstrings of `circle_train`'s public names.
`import circle_train as ct` gives all of them; `from circle_train.callbacks import EarlyStopping` and its like work too.
"""


def api_page() -> str:
    values = [(name, getattr(ct, name)) for name in sorted(ct.__all__, key=str.lower)]
    tops = [(name, value) for name, value in values if not isinstance(value, ModuleType)]
    rooms = [(name, value) for name, value in values if isinstance(value, ModuleType)]
    parts = [HEAD, "## circle_train", ""]
    for name, value in sorted(tops, key=lambda pair: _is_error(pair[1])):
        parts += _entry(f"ct.{name}", value)
    for name, room in rooms:
        parts += [f"## circle_train.{name}", "", _first_line(room), ""]
        for public in sorted(room.__all__, key=str.lower):
            value = getattr(room, public)
            if inspect.isclass(value) or inspect.isfunction(value):
                parts += _entry(f"ct.{name}.{public}", value)
            elif isinstance(value, dict):
                parts += [
                    f"### ct.{name}.{public}",
                    "",
                    f"Names: {', '.join(f'`{key}`' for key in value)}.",
                    "",
                ]
    return "\n".join(parts)


def _is_error(value: Any) -> bool:
    return inspect.isclass(value) and issubclass(value, Exception)


def _entry(name: str, value: Any) -> list[str]:
    """Heading, call, docstring, what fields mean, methods."""
    call = "" if _is_error(value) or _is_enum(value) else _call(name, value)
    text = "\n\n".join(part for part in (call, inspect.getdoc(value) or "") if part)
    rows = [f"### {name}", "", "```text", text, "```", ""]
    if inspect.isclass(value) and not _is_error(value):
        fields = _documented_fields(value)
        rows += [f"* `{field}`: {words}" for field, words in fields.items()]
        rows += [f"* `{_method(other, member)}`: {_first_line(member)}" for other, member in _members(value)]
        rows += [""]
    return rows


def _is_enum(value: Any) -> bool:
    return inspect.isclass(value) and issubclass(value, Enum)


def _call(name: str, value: Any) -> str:
    """The name with its arguments, on lines of their own where they are many."""
    arguments = _arguments(value)
    line = f"{name}({', '.join(arguments)})"
    return line if len(line) <= 100 else f"{name}(\n" + "".join(f"    {one},\n" for one in arguments) + ")"


def _arguments(value: Any) -> list[str]:
    found: list[str] = []
    keywords = False
    for one in inspect.signature(value).parameters.values():
        if one.name == "self" or one.name.startswith("unknown"):
            continue
        if one.kind is one.KEYWORD_ONLY and not keywords:
            found.append("*")
            keywords = True
        stars = {one.VAR_POSITIONAL: "*", one.VAR_KEYWORD: "**"}.get(one.kind, "")
        kind = one.annotation if isinstance(one.annotation, str) else ""
        text = f"{stars}{one.name}" + (f": {kind}" if kind else "")
        found.append(text if one.default is one.empty else f"{text} = {_shown(one.default)}")
    return found


def _shown(default: Any) -> str:
    return repr(default.value) if isinstance(default, Enum) else repr(default)


def _members(value: type) -> list[tuple[str, Any]]:
    """Public methods and properties that the class or its bases of ours describe."""
    found = {}
    for name in dir(value):
        member = inspect.getattr_static(value, name)
        member = member.__func__ if isinstance(member, (classmethod, staticmethod)) else member
        is_ours = isinstance(member, property) or inspect.isfunction(member)
        if not name.startswith("_") and is_ours and inspect.getdoc(member):
            found[name] = member
    return list(found.items())


def _method(name: str, member: Any) -> str:
    return name if isinstance(member, property) else f"{name}({', '.join(_arguments(member))})"


def _first_line(value: Any) -> str:
    return " ".join((inspect.getdoc(value) or "").split("\n\n")[0].split())


def _documented_fields(value: type) -> dict[str, str]:
    """The texts that stand below fields, of the class and its bases."""
    found: dict[str, str] = {}
    for base in reversed(value.__mro__):
        if base.__module__.startswith("circle_train"):
            (tree,) = ast.parse(textwrap.dedent(inspect.getsource(base))).body
            assert isinstance(tree, ast.ClassDef)
            for field, text in zip(tree.body, tree.body[1:], strict=False):
                match field, text:
                    case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=words)):
                        found[name] = " ".join(str(words).split())
    return found
