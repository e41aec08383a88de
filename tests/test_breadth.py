"""The table of ordinary networks: ratios as they were measured, and none where not both trained the same."""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path
from typing import Any

import pytest

SCRIPT = Path(__file__).resolve().parents[1] / "tools" / "dev" / "breadth.py"


@pytest.fixture
def breadth(monkeypatch: pytest.MonkeyPatch) -> Any:
    spec = importlib.util.spec_from_file_location("breadth", SCRIPT)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "breadth", module)
    monkeypatch.syspath_prepend(str(SCRIPT.parent))
    spec.loader.exec_module(module)
    limits = importlib.import_module("limits")
    monkeypatch.setattr(limits, "floors", lambda: {"unet": 1.5})
    monkeypatch.setattr(module, "referees", dict)
    return module


def measured(wall: float, growth: float, losses: list[float]) -> dict[str, Any]:
    return {"wmin": wall, "cmin": 2 * wall, "hwm": growth, "loss": losses[0], "l": losses}


def rows(breadth: Any, path: Path, *lines: dict[str, Any]) -> list[str]:
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return list(breadth.table(breadth.results(path, 2)))[2:]


LOSSES = [2.0 - 0.1 * i for i in range(10)]


def test_ratios_of_the_last_run_and_their_bars(breadth: Any, tmp_path: Path) -> None:
    old = {"name": "unet", "circle/2": measured(9, 9, LOSSES), "torch/2/cl": measured(9, 9, LOSSES)}
    new = {"name": "unet", "circle/2": measured(3, 6, LOSSES), "torch/2/cl": measured(5, 10, LOSSES)}
    other = {"name": "unet", "circle/1": measured(1, 1, LOSSES), "torch/1/cl": measured(1, 1, LOSSES)}
    (row,) = rows(breadth, tmp_path / "r.jsonl", old, new, other)
    cells = [cell.strip() for cell in row.split("|")[1:-1]]
    assert cells[1:] == ["3.0", "**0.60**", "0.7", "0.30", "0.60", "6.0", "0.60", "0.5"]


@pytest.mark.parametrize(("step", "change"), [(0, 1e-3), (9, 0.05)])
def test_no_ratio_where_losses_differ(breadth: Any, tmp_path: Path, step: int, change: float) -> None:
    losses = [loss * (1 + change * (i == step)) for i, loss in enumerate(LOSSES)]
    line = {"name": "unet", "circle/2": measured(3, 6, losses), "torch/2/cl": measured(5, 10, LOSSES)}
    (row,) = rows(breadth, tmp_path / "r.jsonl", line)
    assert "losses are not the same" in row


def test_who_failed_is_named(breadth: Any, tmp_path: Path) -> None:
    line = {"name": "unet", "circle/2": None, "torch/2/cl": measured(5, 10, LOSSES)}
    (row,) = rows(breadth, tmp_path / "r.jsonl", line)
    assert "we fail" in row


def test_networks_that_are_not_of_the_survey_are_refused(breadth: Any) -> None:
    with pytest.raises(SystemExit, match="nonet"):
        breadth.main(["--networks", "unet,nonet"])


def test_the_load_is_that_of_the_measurement(breadth: Any, tmp_path: Path) -> None:
    """Each network's when it was measured, and of those that the table shows."""
    path = tmp_path / "r.jsonl"
    both = {"circle/2": measured(3, 6, LOSSES), "torch/2/cl": measured(5, 10, LOSSES)}
    lines = [{"name": "unet", **both}, {"name": "unet", "load": 1.9}, {"name": "kws", "load": 17.0}]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    options = breadth.parse(["--results", str(path)])
    head = breadth.section(breadth.results(path, 2), options).splitlines()[1]
    assert "load average 1.9 to 1.9 on" in head
