"""How the suite is run: what takes longest begins first, and what has passed in another environment is left out on request.

pytest --write-passed=FILE      writes the names of the tests that passed
pytest --passed=FILE            runs the others: those that were skipped there, or were not even there
"""

from __future__ import annotations

from functools import cache
from inspect import isfunction
from pathlib import Path
from types import ModuleType
from zlib import crc32

import numpy as np
import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("circle_train")
    group.addoption("--write-passed", metavar="FILE", help="write there the names of the tests that passed")
    group.addoption("--passed", metavar="FILE", help="leave out the tests that this file names")


def pytest_configure(config: pytest.Config) -> None:
    if config.option.write_passed and not hasattr(config, "workerinput"):
        config.pluginmanager.register(Passed(Path(config.option.write_passed)))


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if config.option.passed:
        passed = set(Path(config.option.passed).read_text(encoding="utf-8").splitlines())
        config.hook.pytest_deselected(items=[item for item in items if item.nodeid in passed])
        items[:] = [item for item in items if item.nodeid not in passed]
    items.sort(key=lambda item: -seconds(item))


@pytest.fixture(autouse=True)
def fixture_numbers(request: pytest.FixtureRequest) -> None:
    """What a test draws from generators of modules depends on its name, not on what ran before it."""
    for generator in generators(getattr(request, "module", None)):
        generator.bit_generator.state = np.random.PCG64(crc32(request.node.name.encode())).state


@cache
def generators(module: ModuleType | None) -> list[np.random.Generator]:
    """Of a module, and of those whose functions it uses."""
    names = vars(module) if module is not None else {}
    spaces = [names, *(value.__globals__ for value in names.values() if isfunction(value))]
    return [v for space in spaces for v in space.values() if isinstance(v, np.random.Generator)]


def seconds(item: pytest.Item) -> float:
    """What a slow test says of itself: `pytest.mark.slow(seconds=40)`."""
    mark = item.get_closest_marker("slow")
    return float(mark.kwargs.get("seconds", 0)) if mark else 0.0


class Passed:
    """Writes which tests passed, in each of their stages."""

    def __init__(self, file: Path) -> None:
        self.file = file
        self.passed: dict[str, bool] = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self.passed[report.nodeid] = self.passed.get(report.nodeid, True) and report.passed

    def pytest_sessionfinish(self) -> None:
        names = [name for name, passed in self.passed.items() if passed]
        self.file.write_text("".join(f"{name}\n" for name in names), encoding="utf-8")
