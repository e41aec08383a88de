"""The fuzzer: what it has found stays mended, it notices what it is there for, and a few cases of each kind pass."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from circle_train.backends import native

ROOT = Path(__file__).parents[1]
pytestmark = [
    pytest.mark.skipif(os.name != "posix", reason="the fuzzer forks"),
    pytest.mark.skipif(not native.is_available(), reason="the native engine was not built"),
]


def fuzz(*words: str, code: str = "") -> subprocess.CompletedProcess[str]:
    """The command, with Python code run before it."""
    start = f"import sys, runpy; sys.path.insert(0, {str(ROOT / 'tools' / 'dev')!r}); {code}\n"
    run = f"sys.argv = {['fuzz.py', *words]!r}; runpy.run_path({str(ROOT / 'tools/dev/fuzz.py')!r}, run_name='__main__')"
    return subprocess.run(
        [sys.executable, "-c", start + run],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
        cwd=Path(__file__).parent,
    )


@pytest.mark.parametrize("target", ["model", "settings", "data"])
def test_what_was_found_stays_mended(target: str) -> None:
    done = fuzz(target, "--kept", "--processes", "1")
    assert done.returncode == 0, done.stdout + done.stderr
    assert ", 0 findings" in done.stdout


@pytest.mark.slow
def test_onnx_models_that_were_found_stay_mended() -> None:
    done = fuzz("onnx", "--kept", "--processes", "1")
    assert done.returncode == 0, done.stdout + done.stderr


TARGETS = [
    "model",
    "checkpoint",
    "package",
    "settings",
    "data",
    "image",
    "sound",
    "text",
    "table",
    "described",
]


@pytest.mark.parametrize("target", TARGETS)
def test_damaged_files_are_refused_or_right(target: str, tmp_path: Path) -> None:
    done = fuzz(target, "--cases", "40", "--processes", "1", "--json", str(tmp_path / "figures"))
    assert done.returncode == 0, done.stdout + done.stderr
    ((outcomes, findings),) = json.loads((tmp_path / "figures").read_text()).values()
    assert sum(outcomes.values()) == 40 and not findings and outcomes.get("done")


def odd(body: str) -> str:
    """Code that puts a target in the place of one: its cases are their numbers, the body is what is done with one."""
    return (
        "from fuzzing import cases\n"
        f"def bad():\n {body}\n"
        "def run(case, rng, folder):\n if case == 1: bad()\n"
        "made = lambda name, number: (number, None)\n"
        "class Odd:\n seeds = staticmethod(list)\n run = staticmethod(run)\n made = staticmethod(made)\n"
        "cases.TARGETS['settings'] = Odd\n"
    )


@pytest.mark.parametrize(
    "fault, found",
    [
        ("raise KeyError('foreign')", "KeyError at"),
        ("import os, signal; os.kill(os.getpid(), signal.SIGSEGV)", "SIGSEGV"),
        ("import os; os._exit(3)", "exit status 3"),
        ("\n while True: pass", "hang"),
        ("bytearray(3 << 30)", "MemoryError at"),
    ],
)
def test_what_it_is_there_for_is_noticed(fault: str, found: str) -> None:
    """The second of three cases goes wrong: it is a finding, and the others are run all the same."""
    done = fuzz("settings", "--cases", "3", "--processes", "1", code=odd(fault))
    assert done.returncode == 1, done.stdout + done.stderr
    assert found in done.stdout and "settings:1 (1 cases)" in done.stdout and "3 cases in" in done.stdout


def test_a_run_that_was_broken_off_goes_on_where_it_was(tmp_path: Path) -> None:
    """The second command runs two cases, of which none is bad, and tells of all five."""
    words = ["settings", "--processes", "1", "--record", str(tmp_path / "record")]
    assert fuzz(*words, "--cases", "3", code=odd("raise KeyError('foreign')")).returncode == 1
    known = json.loads((tmp_path / "record").read_text())["targets"]["settings"]
    assert known["done"] == [[0, 3]] and known["outcomes"] == {"done": 2, "finding": 1}
    later = fuzz(*words, "--cases", "5", code=odd("import os; os._exit(3)"))
    assert later.returncode == 1 and "5 cases in" in later.stdout
    assert "settings:1 (1 cases)  KeyError" in later.stdout and "exit status" not in later.stdout
