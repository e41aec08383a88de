"""The command that puts folders of models through the whole course: what it counts, and what it takes."""

from __future__ import annotations

import runpy
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SURVIVE = ROOT / "tools" / "dev" / "survive.py"


def test_the_table_counts_what_came_through_and_names_the_rest() -> None:
    tool = runpy.run_path(str(SURVIVE), run_name="survive")
    table = {
        "a": {"load": True, "match": True, "export .onnx": None},
        "b": {"load": True, "match": "off by 1"},
        "c": {"load": "Refused: no"},
    }
    lines = tool["summary"](table)
    assert lines[0].strip() == "load: 2 of 3 (1 × Refused)"
    assert tool["share"](table) == 0.5


def test_the_same_model_is_taken_once(tmp_path: Path) -> None:
    tool = runpy.run_path(str(SURVIVE), run_name="survive")
    (tmp_path / "net.onnx").touch()
    (tmp_path / "notes.txt").touch()
    found = tool["models_in"]([str(tmp_path), str(tmp_path / "net.onnx")])
    assert found == [tmp_path / "net.onnx"]
