"""What `circle-train doctor` finds."""

from __future__ import annotations

import json
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest

from circle_train.backends.native.engine import library
from circle_train.cli import doctor
from circle_train.cli.main import main


def test_the_package_runs_as_a_module() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "circle_train", "doctor", "--json"],
        capture_output=True,
        text=True,
        check=True,
        cwd=Path(__file__).parent,
    )
    found = json.loads(done.stdout)
    assert found["numpy"] == version("numpy")
    assert found["engine"].startswith(("native, ", "numpy, slower: "))


def test_a_missing_engine_says_what_to_do(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(library, "load", lambda: None)
    monkeypatch.setattr(library, "path", lambda: None)
    assert main(["doctor"]) == 0
    assert "install a C++ compiler and reinstall" in capsys.readouterr().out
    monkeypatch.setattr(library, "path", lambda: "old.so")
    assert "old.so is not of this version or machine" in doctor.engine()


def test_a_missing_extra_says_how_it_comes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "version", lambda package: None)
    found = doctor.findings()
    assert found["numpy"] == "missing: pip install numpy"
    assert found["[images]"] == "missing (photographs as data): pip install 'circle-train[images]'"


def test_every_extra_for_users_is_looked_for() -> None:
    text = (Path(__file__).parents[2] / "pyproject.toml").read_text(encoding="utf-8")
    extras = text.split("[project.optional-dependencies]")[1].split("[project.scripts]")[0]
    for name, (package, _) in doctor.EXTRAS.items():
        line = next(line for line in extras.splitlines() if line.startswith(f"{name} = "))
        assert f'"{package.lower()}>' in line.lower()
