"""The tool that breaks the code knows the code, and where each mistake stands."""

from __future__ import annotations

import importlib
import importlib.util
from pathlib import Path
from typing import Any

import numpy as np
import pytest

ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture
def tool(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(ROOT / "tools/dev"))
    return importlib.import_module("mutants")


def test_each_picked_mistake_can_be_made(tool: Any) -> None:
    gone = []
    for mutant in tool.MUTANTS:
        text = (ROOT / "circle_train" / mutant.path).read_text(encoding="utf-8")
        if mutant.old not in text or not any((ROOT / test).exists() for test in mutant.tests):
            gone.append(mutant.what)
    assert not gone


TEXT = """
import functools

class A:
    x = 1

    def f(self, y):
        def g():
            return 2
        if y:
            return g
        return y

@functools.cache
def kept():
    return 3
"""


def test_a_change_is_told_by_the_stretch_around_it(tool: Any) -> None:
    places = {
        "return 2": "a.py:A.f.<locals>.g", "return g": "a.py:A.f: return g", "if y": "a.py:A.f",
        "return y": "a.py:A.f: return y", "return 3": "a.py:kept", "x = 1": None,
    }  # fmt: skip
    for line, place in places.items():
        stretch = tool.stretch_around(tool.Mutant("", "a.py", line, f"{line} + 1", ()), TEXT)
        assert (stretch and stretch.name) == place
        assert stretch is None or stretch.is_remembered == (place == "a.py:kept")


def test_marked_code_says_what_it_reaches_and_does_the_same(
    tool: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "circle_train").mkdir()
    (tmp_path / "circle_train/a.py").write_text(TEXT, encoding="utf-8")
    marking = importlib.import_module("mutating.stretches")
    finder = marking.Finder()
    spec = finder.find_spec("circle_train.a", [str(tmp_path / "circle_train")])
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    names = list(finder.numbers)
    assert sorted(names) == sorted(stretch.name for stretch in marking.stretches("a.py", TEXT))
    assert not finder.reached and module.A().f(0) == 0
    assert {names[number] for number in finder.reached} == {"a.py:A.f", "a.py:A.f: return y"}
    assert module.A().f(1)() == 2 and module.kept() == 3
    assert len(finder.reached) == len(names) == 5


def test_tests_of_the_room_come_first_then_those_that_reach_little_else(tool: Any, tmp_path: Path) -> None:
    tests = ["tests/a/test_x.py::wide", "tests/b/test_y.py::narrow", "tests/b/test_y.py::wide"]
    table = np.array([[1, 1, 1], [1, 0, 0], [1, 1, 1]], bool)
    names = ["a.py:f", "b.py:g", "b.py:g: return h"]
    packed = np.packbits(table, axis=1)
    np.savez(
        tmp_path / "w.npz", tests=tests, seconds=np.ones(3), functions=names, table=packed, early=names[:1]
    )
    reach = tool.Reach(tmp_path)
    assert reach.tests_of(names[:1], ("tests/c",)) == [tests[1], tests[0], tests[2]]
    assert reach.tests_of(names[:1], ("tests/a",)) == [tests[0], tests[1], tests[2]]
    assert reach.tests_of(names[1:], ("tests/c",)) == [tests[0], tests[2]]
    assert reach.names("b.py", "b.py:g: return h") == names[2:]
    assert reach.names("b.py", "b.py:g: a new line") == names[1:2]
    assert reach.names("b.py", None) == reach.names("b.py", "b.py:new") == names[1:]
    assert not {tests[0], tests[2]} & {*reach.tests_of(["b.py:unheard of"], ())}
    assert reach.indifferent(["nothing"]) == tests and reach.early == {"a.py:f"}
