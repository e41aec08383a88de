"""Which tests reach which functions of the package: a plugin of pytest (`-p mutating.reach`) that learns it, or runs some.

REACH_LEARN=folder  every worker writes there which functions each of its tests called
REACH_TESTS=file    only the tests that the file names run, in its order
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import numpy as np
import pytest

HERE = f"{os.sep}circle_train{os.sep}"


class Learner:
    """Notes whatever is called, test by test."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.called: set[CodeType] = set()
        self.numbers: dict[str, int] = {}
        self.tests: list[str] = []
        self.seconds: list[float] = []
        self.reached: list[np.ndarray] = []
        self.failed: set[str] = set()
        """Tests that do not bear being watched, as those of time and threads: they are no judges."""

    def note(self, frame: FrameType, event: str, _: Any) -> None:
        if event == "call":
            self.called.add(frame.f_code)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self.failed.add(report.nodeid)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        self.called = set()
        threading.setprofile(self.note)
        sys.setprofile(self.note)
        before = os.times()
        try:
            return (yield)
        finally:
            sys.setprofile(None)
            threading.setprofile(None)
            after = os.times()
            if item.nodeid not in self.failed:
                self.keep(item.nodeid, sum(after[:4]) - sum(before[:4]))

    def keep(self, test: str, seconds: float) -> None:
        self.tests.append(test)
        self.seconds.append(seconds)
        names = {name for code in set(self.called) if (name := _name(code))}
        self.reached.append(np.array([self.numbers.setdefault(n, len(self.numbers)) for n in names], int))

    def pytest_sessionfinish(self) -> None:
        if not self.tests:
            return
        table = np.zeros((len(self.tests), len(self.numbers)), bool)
        for row, numbers in zip(table, self.reached, strict=True):
            row[numbers] = True
        np.savez_compressed(
            self.folder / f"{os.environ.get('PYTEST_XDIST_WORKER', 'alone')}.npz",
            tests=np.array(self.tests),
            seconds=np.array(self.seconds),
            functions=np.array(list(self.numbers)),
            table=np.packbits(table, axis=1),
        )


def _name(code: CodeType) -> str:
    """`room/file.py:Class.method` of a function of the package, '' of another."""
    _, found, path = code.co_filename.rpartition(HERE)
    if not found or code.co_qualname == "<module>":
        return ""
    return f"{path}:{code.co_qualname}"


class Chooser:
    """Keeps to the tests that are wanted; files in the order in which the first of each is named."""

    def __init__(self, wanted: list[str]) -> None:
        self.rank = {test: i for i, test in enumerate(wanted)}
        self.files: dict[str, int] = {}
        for test in wanted:
            self.files.setdefault(test.partition("::")[0], len(self.files))

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        there = [item for item in items if item.nodeid in self.rank]
        there.sort(key=lambda item: (self.files[item.nodeid.partition("::")[0]], self.rank[item.nodeid]))
        items[:] = there


def pytest_configure(config: pytest.Config) -> None:
    if folder := os.environ.get("REACH_LEARN"):
        config.pluginmanager.register(Learner(Path(folder)))
    if file := os.environ.get("REACH_TESTS"):
        config.pluginmanager.register(Chooser(Path(file).read_text(encoding="utf-8").splitlines()))
