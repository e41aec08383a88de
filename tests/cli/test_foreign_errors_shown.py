"""What nobody foresaw is said in one line by commands."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest
from networks import finish, make, mlp, new_input, weight

from circle_train.cli import info, main
from circle_train.cli.onert import circle_plus_gen, generate_datafile, train as onert_train
from circle_train.ir import Graph

# The command line


@pytest.fixture
def stumbling(monkeypatch: pytest.MonkeyPatch) -> None:
    def stumble(_: object) -> int:
        raise KeyError("what nobody foresaw")

    monkeypatch.setattr(info, "run", stumble)
    for tool in (onert_train, generate_datafile, circle_plus_gen):
        monkeypatch.setattr(tool.ct, "load", stumble)
        monkeypatch.setattr(tool, "convert", stumble, raising=False)


@pytest.mark.usefixtures("stumbling")
def test_the_command_line_says_in_one_line_what_nobody_foresaw(capsys: pytest.CaptureFixture[str]) -> None:
    assert main.main(["info", "net.circle"]) == 1
    said = capsys.readouterr().err
    assert said.startswith(
        "error: KeyError: 'what nobody foresaw'; this is a fault of circle-train, please report"
    )
    assert said.count("\n") == 1 and "Traceback" not in said


@pytest.mark.usefixtures("stumbling")
@pytest.mark.parametrize(
    ("tool", "words"),
    [
        (onert_train, "net.circle"),
        (circle_plus_gen, "net.circle"),
        (generate_datafile, "-d mnist --split train --length 1 -m mnist"),
    ],
)
def test_onerts_tools_say_it_in_one_line_too(
    tool: Any, words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert tool.main(words.split()) == 1
    said = capsys.readouterr().err
    assert (
        said.startswith("error: KeyError: 'what nobody foresaw'; this is a fault") and said.count("\n") == 1
    )


@pytest.mark.parametrize("words", [["info"], ["info", "--json"], ["check"]])
@pytest.mark.parametrize("encoding", ["ascii", "cp1252", "utf-8"])
def test_any_name_is_shown_by_any_terminal(
    encoding: str, words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What its letters cannot say stands there as an escape, in JSON as JSON has it."""
    graph = Graph("net", [new_input("x", 1, 4)])
    made = graph.emit(make("FULLY_CONNECTED"), graph.inputs[0], weight("gewicht ä中", 2, 4), None)
    model = finish(graph, made)
    model.save(tmp_path / "ä.circle")
    out = io.BytesIO()
    monkeypatch.setattr("sys.stdout", io.TextIOWrapper(out, encoding))
    assert main.main([words[0], str(tmp_path / "ä.circle"), *words[1:]]) == 0
    said = out.getvalue().decode(encoding)
    if "--json" in words:
        assert "ä.circle" in json.dumps(json.loads(said), ensure_ascii=False)
    else:
        assert ("ä" in said) == (encoding != "ascii")


def test_a_command_needs_nothing_to_write_to(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mlp().save(tmp_path / "net.circle")
    for name in ("sys.stdout", "sys.stderr"):
        monkeypatch.setattr(name, None)
    assert main.main(["info", str(tmp_path / "net.circle")]) == 0
    assert main.main(["info", "nowhere.circle"]) == 1


@pytest.mark.usefixtures("stumbling")
def test_debug_shows_where(capsys: pytest.CaptureFixture[str]) -> None:
    assert main.main(["--debug", "info", "net.circle"]) == 1
    assert "Traceback" in capsys.readouterr().err
