"""Memory that the machine, or the group that a process runs in, does not have is refused before it is taken."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import networks
import pytest

import circle_train as ct
from circle_train import available
from circle_train.available import available_bytes
from circle_train.runtime import pages


@pytest.fixture
def system(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("MEMINFO", "OWN_GROUPS", "GROUPS"):
        monkeypatch.setattr(available, name, tmp_path / name.lower())
    (tmp_path / "meminfo").write_text("MemTotal:  900 kB\nMemFree: 1 kB\nMemAvailable:  500 kB\n")
    return tmp_path


def group(place: Path, limit: str, used: int, cached: int, version: int = 2) -> None:
    place.mkdir(parents=True, exist_ok=True)
    names = {1: ("limit_in_bytes", "usage_in_bytes"), 2: ("max", "current")}[version]
    for name, value in zip(names, (limit, used), strict=True):
        (place / f"memory.{name}").write_text(f"{value}\n")
    word = "total_inactive_file" if version == 1 else "inactive_file"
    (place / "memory.stat").write_text(f"anon 7\n{word} {cached}\n")


def test_without_groups_the_machine_decides(system: Path) -> None:
    assert available_bytes() == 500 * 1024
    (system / "meminfo").unlink()
    assert available_bytes() is None


@pytest.mark.parametrize("version", [1, 2])
def test_the_narrowest_group_decides(version: int, system: Path) -> None:
    top = system / "groups" / ("memory" if version == 1 else "")
    (system / "own_groups").write_text("4:cpu:/a/b\n5:memory:/a/b\n" if version == 1 else "0::/a/b\n")
    group(top / "a", "300000", 200000, 50000, version)
    group(top / "a" / "b", "max", 10, 0, version)
    assert available_bytes() == 150000
    group(top / "a" / "b", "90000", 100000, 0, version)
    assert available_bytes() == 0


def test_a_model_that_needs_more_is_refused_before_it_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pages, "available_bytes", lambda: 100 << 20)
    assert pages.allocate(90 << 20).nbytes == 90 << 20
    with pytest.raises(
        ct.ModelError, match=r"needs 125829120 bytes .* 104857600 are free; use a smaller batch"
    ):
        pages.allocate(120 << 20)


def test_memory_that_is_only_counted_is_bounded_too() -> None:
    with pytest.raises(ct.ModelError, match="absurd or damaged"):
        pages.untouched(pages.LARGEST + 1)


NARROW = """
import resource, sys
import numpy as np, circle_train as ct
config = ct.TrainConfig(loss="mse", batch_size=1 << 16, memory_budget="40MB")
session = ct.TrainSession(sys.argv[1], config, threads=1)
taken = next(int(line.split()[1]) << 10 for line in open("/proc/self/status") if line.startswith("VmSize"))
resource.setrlimit(resource.RLIMIT_AS, (taken + (200 << 20), resource.RLIM_INFINITY))
session.prepare()
print(session.train_step(np.zeros((1 << 16, 6), np.float32), np.zeros((1 << 16, 4), np.float32)).loss > 0)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="limits addresses as Linux does")
def test_a_budget_is_planned_without_the_memory_that_it_saves(tmp_path: Path) -> None:
    """The whole batch would take half a gigabyte, which this process may not even reserve."""
    networks.mlp(hidden=1024).save(tmp_path / "wide.circle")
    command = [sys.executable, "-c", NARROW, str(tmp_path / "wide.circle")]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path)
    assert done.stdout == "True\n", done.stderr
