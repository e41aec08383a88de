"""Which tests reach which stretches of the package: a plugin of pytest (`-p mutating.reach`) that learns it, or runs some.

REACH_LEARN=folder  every worker writes there, room by room, what each of its tests reached
REACH_TESTS=file    only the tests that the file names run, in its order
REACH_LEFT=file     the tests that the file names do not run
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from mutating.stretches import Finder

SPAWNS = "spawns"
"""Is reached by tests that start other processes, whose work is not seen."""
SPAWNING = {"subprocess.Popen", "os.fork", "os.posix_spawn"}
FINDER = Finder()
if "REACH_LEARN" in os.environ:  # before anything of the package is imported
    FINDER.install()


class Learner:
    """Notes what is reached, test by test; what fixtures of many tests reached counts for each of them. What is reached when
    modules are imported, and concerns whoever imports them, is noted too."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.tests: list[str] = []
        self.seconds: list[float] = []
        self.reached: list[np.ndarray] = []
        self.failed: set[str] = set()
        """They are no judges."""
        self.given: dict[object, set[int]] = {}
        self.early: set[int] = set()
        self.files = 0
        spawns = FINDER.numbers.setdefault(SPAWNS, len(FINDER.numbers))
        sys.addaudithook(lambda event, _: FINDER.reached.add(spawns) if event in SPAWNING else None)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self.failed.add(report.nodeid)

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(self, fixturedef: pytest.FixtureDef[object]) -> Iterator[None]:
        before = set(FINDER.reached)
        FINDER.reached.clear()
        try:
            return (yield)
        finally:
            if fixturedef.scope != "function":
                self.given.setdefault(fixturedef, set()).update(FINDER.reached)
            FINDER.reached.update(before)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        if self.tests and room_of(self.tests[-1]) != room_of(item.nodeid):
            self.write()
        self.early |= FINDER.reached
        FINDER.reached.clear()
        before = spent()
        try:
            return (yield)
        finally:
            if item.nodeid not in self.failed:
                self.keep(item, spent() - before)
            FINDER.reached.clear()

    def keep(self, item: Any, seconds: float) -> None:
        reached = set(FINDER.reached)
        for name in getattr(item, "fixturenames", ()):
            for fixture in item._fixtureinfo.name2fixturedefs.get(name, ()):
                reached |= self.given.get(fixture, set())
        self.tests.append(item.nodeid)
        self.seconds.append(seconds)
        self.reached.append(np.fromiter(reached, np.int32))

    def pytest_sessionfinish(self) -> None:
        self.write()

    def write(self) -> None:
        """What was learned of a room; with the stretches that were imported and not reached."""
        if not self.tests:
            return
        room = self.folder / room_of(self.tests[-1])
        room.mkdir(parents=True, exist_ok=True)
        names = list(FINDER.numbers)
        table = np.zeros((len(self.tests), -(-len(names) // 8)), np.uint8)
        for row, numbers in zip(table, self.reached, strict=True):
            bits = np.zeros(len(names), bool)
            bits[numbers] = True
            row[:] = np.packbits(bits)
        worker = os.environ.get("PYTEST_XDIST_WORKER", "alone")
        np.savez_compressed(
            room / f"{worker}{self.files}.npz",
            tests=np.array(self.tests),
            seconds=np.array(self.seconds),
            functions=np.array(names),
            table=table,
            early=np.array([names[number] for number in self.early], str),
        )
        self.files += 1
        self.tests, self.seconds, self.reached = [], [], []


def room_of(test: str) -> str:
    return test.split("/")[1].partition("::")[0]


def spent() -> float:
    """Processor time of this process and of the children that it waited for."""
    return time.process_time() + sum(os.times()[2:4])


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


class Leaver:
    """Leaves tests out."""

    def __init__(self, left: set[str]) -> None:
        self.left = left

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        items[:] = [item for item in items if item.nodeid not in self.left]


def pytest_configure(config: pytest.Config) -> None:
    plugins = config.pluginmanager
    if folder := os.environ.get("REACH_LEARN"):
        plugins.register(Learner(Path(folder)))
    if file := os.environ.get("REACH_TESTS"):
        plugins.register(Chooser(Path(file).read_text(encoding="utf-8").splitlines()))
    if file := os.environ.get("REACH_LEFT"):
        plugins.register(Leaver(set(Path(file).read_text(encoding="utf-8").splitlines())))
