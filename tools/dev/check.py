#!/usr/bin/env python3
"""Everything that CI checks, in one command: style, types, tests fast and slow, documentation.

python tools/dev/check.py            all of it
python tools/dev/check.py --fast     without the slow tests
python tools/dev/check.py --passed FILE    without the fast tests that FILE names (pytest --write-passed=FILE wrote it)
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PYTHON_FILES = ["circle_train", "tests", "tools"]
LONGEST = 2400
"""Seconds that a stage may take."""
BOTH_CORES = ["-n", "auto", "--dist", "worksteal"]


def stages(fast: bool, passed: Path | None) -> list[tuple[str, list[str]]]:
    """Names and commands, cheapest first."""
    run = [sys.executable, "-m"]
    pytest = str(
        Path(sys.executable).with_name("pytest")
    )  # with -m it would import the tree, not the package
    found = [
        ("style", [*run, "ruff", "check", *PYTHON_FILES]),
        ("format", [*run, "ruff", "format", "--check", *PYTHON_FILES]),
        ("types", [*run, "mypy"]),
        ("generated ABI", [sys.executable, "tools/dev/make_abi.py", "--check"]),
        ("generated pages", [sys.executable, "tools/dev/make_docs.py", "--check"]),
        ("tests", [pytest, *BOTH_CORES, *([f"--passed={passed.resolve()}"] if passed else [])]),
    ]
    if not fast:
        found.append(("damaged files", [sys.executable, "tools/dev/fuzz.py"]))
        found.append(("ONNX operators", [sys.executable, "tools/dev/onnx_table.py", "--check"]))
        found.append(
            (
                "slow tests",
                [
                    pytest,
                    "-m",
                    "slow and not thorough",
                    "-n",
                    "auto",
                    "--dist",
                    "loadgroup",
                    "--durations=20",
                ],
            )
        )
    return found


def ended(command: list[str]) -> int | None:
    """Its exit status; None where it hangs, with all that it started ended."""
    process = subprocess.Popen(command, cwd=ROOT, start_new_session=True)
    try:
        return process.wait(LONGEST)
    except subprocess.TimeoutExpired:
        return None
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--fast", action="store_true", help="leave out the slow tests")
    parser.add_argument("--passed", type=Path, metavar="FILE", help="fast tests that need not run again")
    arguments = parser.parse_args()
    failed = []
    for name, command in stages(arguments.fast, arguments.passed):
        print(f"== {name}: {' '.join(command)}", flush=True)
        start = time.perf_counter()
        status = ended(command)
        verdict = {0: "ok", None: "DID NOT END"}.get(status, "FAILED")
        print(f"== {name}: {verdict} in {time.perf_counter() - start:.0f} s", flush=True)
        if status != 0:
            failed.append(name)
    print(f"== failed: {', '.join(failed)}" if failed else "== all checks passed", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
