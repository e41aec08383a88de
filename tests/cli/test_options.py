"""No option of any command does nothing: with it, what is printed, written or refused is another than without.

Walks the parser: an option without a row in option_uses.py fails, and so does a row whose option changes nothing.
"""

from __future__ import annotations

import argparse
import hashlib
import re
import shutil
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from option_uses import USES
from options_world import write_world

from circle_train.cli.main import main, parser


def commands(top: argparse.ArgumentParser, name: str = "") -> Iterator[tuple[str, argparse.ArgumentParser]]:
    """Every command's parser."""
    below = [action for action in top._actions if isinstance(action, argparse._SubParsersAction)]
    if not below:
        yield name, top
    for action in below:
        for word, one in action.choices.items():
            yield from commands(one, f"{name} {word}".strip())


def options_of(one: argparse.ArgumentParser) -> set[str]:
    """By the last of their names; what a command cannot do without is no option."""
    return {
        action.option_strings[-1]
        for action in one._actions
        if action.option_strings and not action.required and not isinstance(action, argparse._HelpAction)
    }


PAGE = "report.html"
"""Says when it was made."""
ELSEWHERE = {("federate run", "--run-config"), ("federate deploy", "--run-config")}
"""What Flower does with it is seen in tests/federated/test_app.py."""
ROWS = [(command, option) for command, uses in USES.items() for option in uses]


def test_every_option_of_every_command_has_a_row() -> None:
    there = {(name, option) for name, one in commands(parser()) for option in options_of(one)}
    assert sorted(there - set(ROWS) - ELSEWHERE) == []
    assert sorted({*ROWS, *ELSEWHERE} - there) == []


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("PIL")
    return write_world(tmp_path_factory.mktemp("world"))


@pytest.fixture
def outcome(
    world: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Callable[[str], Any]:
    """Runs a command among fresh copies of the files: its status, what it says without times, and the files it leaves."""

    def run(words: str) -> tuple[int, str, str, dict[str, str]]:
        place = tmp_path / "here"
        shutil.rmtree(place, ignore_errors=True)
        shutil.copytree(world, place)
        monkeypatch.chdir(place)
        capsys.readouterr()
        warnings.simplefilter("always")  # each run says all of its own
        try:
            status = main(words.split())
        except SystemExit as end:
            status = int(end.code or 0)
        said = capsys.readouterr()
        files = {str(f.relative_to(place)): f for f in sorted(place.rglob("*")) if f.is_file()}
        digests = {
            name: hashlib.sha256(f.read_bytes()).hexdigest() for name, f in files.items() if f.name != PAGE
        }
        return status, without_times(said.out), without_times(said.err), digests

    return run


def without_times(text: str) -> str:
    return re.sub(r"[\d.]+ (m?s|MB|GB)\b|\"(seconds|memory.*)\": .*", "…", text)


BEFORE: dict[str, Any] = {}


def without(words: str, outcome: Callable[[str], Any]) -> Any:
    """What a command does without the option; the same each time, or any two runs would differ."""
    if words not in BEFORE:
        BEFORE[words] = outcome(words)
        assert outcome(words) == BEFORE[words]
    return BEFORE[words]


@pytest.mark.slow
@pytest.mark.parametrize(("command", "option"), ROWS, ids=[f"{c}{o}" for c, o in ROWS])
def test_with_it_something_is_otherwise(command: str, option: str, outcome: Callable[[str], Any]) -> None:
    use = USES[command][option]
    before = outcome(use.beside) if use.refused else without(use.beside, outcome)
    after = outcome(f"{use.beside} {use.words}")
    if use.refused:
        assert after[0] in (1, 2) and use.refused in after[2] and use.refused not in before[2]
    else:
        assert after[0] == 0, after[2]
        assert after != before
