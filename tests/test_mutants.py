"""The tool that breaks the code knows the code, and where each mistake stands."""

from __future__ import annotations

import importlib
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


def test_a_change_is_told_by_the_function_around_it(tool: Any) -> None:
    text = (
        "class A:\n    x = 1\n\n    def f(self):\n        def g():\n            return 2\n        return g\n"
    )
    places = {"return 2": "a.py:A.f.<locals>.g", "return g": "a.py:A.f", "x = 1": ""}
    for line, place in places.items():
        assert tool.function_of(tool.Mutant("", "a.py", line, f"{line} + 1", ()), text) == place


def test_tests_of_the_room_come_first_then_those_that_reach_little_else(tool: Any, tmp_path: Path) -> None:
    tests = ["tests/a/test_x.py::wide", "tests/b/test_y.py::narrow", "tests/b/test_y.py::wide"]
    table = np.array([[1, 1, 1], [1, 0, 0], [1, 1, 1]], bool)
    np.savez(
        tmp_path / "w.npz", tests=tests, seconds=np.ones(3), functions=["f", "g", "h"],
        table=np.packbits(table, axis=1),
    )  # fmt: skip
    reach = tool.Reach(tmp_path)
    assert reach.tests_of("f", ("tests/c",)) == [tests[1], tests[0], tests[2]]
    assert reach.tests_of("f", ("tests/a",)) == [tests[0], tests[1], tests[2]]
    assert reach.tests_of("g", ("tests/c",)) == [tests[0], tests[2]]
