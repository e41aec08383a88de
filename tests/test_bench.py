"""The benchmark's page: ratios as they were measured, and none where not all trained the same."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

SCRIPT = Path(__file__).resolve().parents[1] / "tools" / "dev" / "bench.py"


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> Any:
    spec = importlib.util.spec_from_file_location("bench", SCRIPT)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "bench", module)
    spec.loader.exec_module(module)
    return module


def measured(least: float, rounds: list[float], losses: tuple[float, float], growth: float) -> dict[str, Any]:
    """What the comparison writes for a peer."""
    return {
        "ms_per_step_min": least,
        "rounds": [{"median": median} for median in rounds],
        "import_ms": 50.0,
        "prepare_ms": 30.0,
        "first_step_ms": 20.0,
        "rss_growth_mb": growth,
        "loss_1": losses[0],
        "loss_10": losses[1],
        "version": "1",
    }


def write(path: Path, *runs: dict[str, Any]) -> Path:
    path.write_text("".join(json.dumps({"workload": "w2", "time": 0, "peers": run}) + "\n" for run in runs))
    return path


OURS = measured(2.0, [3.0, 2.0], (3.6, 2.3), 12.0)
FAST = measured(4.0, [4.0, 8.0], (3.6001, 2.35), 24.0)
SLOW = measured(8.0, [9.0, 9.0], (3.6, 2.3), 6.0)


def test_ratios_are_against_the_fastest(bench: Any, tmp_path: Path) -> None:
    path = write(tmp_path / "r.jsonl", {"circle": OURS, "slow": SLOW, "fast": FAST, "gone": {"error": "no"}})
    found = bench.results(path, repeat=1)
    row = list(bench.summary(found))[-1].split("|")
    assert [cell.strip() for cell in row[2:-1]] == [
        "fast", "**0.50**", "0.50", "0.8", "**12.0**", "20", "**100**", "160",
    ]  # fmt: skip
    table = list(bench.by_peer(found, "growth", lambda ours, peer: f"{peer.growth / ours.growth:.1f}"))
    assert table[0] == "| growth | slow | fast |"
    assert table[-1] == "| w2 | 0.5 | 2.0 |"


@pytest.mark.parametrize("losses", [(35.8, 9.5), (3.6, 2.0), (3.7, 2.3)])
def test_no_ratio_where_the_losses_differ(bench: Any, tmp_path: Path, losses: tuple[float, float]) -> None:
    ours = measured(2.0, [2.0, 2.0], losses, 12.0)
    found = bench.results(write(tmp_path / "r.jsonl", {"circle": ours, "fast": FAST}), repeat=1)
    row = list(bench.summary(found))[-1]
    assert "not comparable" in row and "0.50" not in row
    assert list(bench.by_peer(found, "time", lambda ours, peer: "1"))[-1] == "| w2 | not comparable |"


def test_only_the_newest_repeats_count(bench: Any, tmp_path: Path) -> None:
    old = {"circle": measured(1.0, [1.0], (3.6, 2.3), 1.0), "fast": FAST}
    path = write(tmp_path / "r.jsonl", old, {"circle": OURS, "fast": FAST}, {"circle": OURS, "fast": FAST})
    ours, _ = bench.split(bench.results(path, repeat=2)["w2"])
    assert ours.least == 2.0 and len(ours.rounds) == 2


def test_own_networks_join_a_copy_of_the_comparison(
    bench: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    beside = tmp_path / "theirs"
    beside.mkdir()
    (beside / "compare.py").write_text("")
    (beside / "run_circle.py").write_text("theirs")
    (beside / "nets.py").write_text(
        'WORKLOADS = {"w2": {}}\n\nif __name__ == "__main__":\n    print(sorted(WORKLOADS))\n'
    )
    monkeypatch.setattr(bench, "COMPARE", beside / "compare.py")
    runner = tmp_path / "ours.py"
    runner.write_text("ours")
    scripts = bench.laid_over(tmp_path / "copy", runner)
    done = subprocess.run(
        [sys.executable, "nets.py"], cwd=scripts, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "['r18', 'w2']"
    assert (scripts / "run_circle.py").read_text() == "ours"
    assert (beside / "run_circle.py").read_text() == "theirs"
