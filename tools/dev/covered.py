#!/usr/bin/env python3
"""How many branches of the readers the fast tests take: of model files, of ONNX files, of checkpoints (pip install coverage).

python tools/dev/covered.py                 measures, and prints each room's share
python tools/dev/covered.py --missing       and what no test takes, line by line
python tools/dev/covered.py --again         prints once more what was measured last

Exit status 1 where a room is below 95 %.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections import defaultdict
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
PLACE = ROOT / "build" / "covered"
ROOMS = {
    "format": "circle_train/format/",
    "checkpoints": "circle_train/checkpoints/",
    "convert/onnx_file": "circle_train/convert/onnx_file/",
    "convert/back/writeback": "circle_train/convert/back/writeback.py",
}
BAR = 0.95
TESTS = (
    "tests/format",
    "tests/checkpoints",
    "tests/convert/onnx_file",
    "tests/convert/test_bounds.py",
    "tests/convert/test_convert.py",
    "tests/convert/test_convert_writeback.py",
    "tests/passes/test_control.py",
    "tests/quantize/test_four_bits_onnx.py",
    "tests/passes/test_shared_constants.py",
    "tests/session/packages/test_artifacts.py",
    "tests/test_foreign_errors.py",
    "tests/test_security.py",
)


def measured() -> None:
    """The tests under the package coverage."""
    PLACE.mkdir(parents=True, exist_ok=True)
    environment = {**os.environ, "COVERAGE_FILE": str(PLACE / "data")}
    pytest = ["-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", *TESTS]
    coverage = [sys.executable, "-m", "coverage"]
    run = [*coverage, "run", "--branch", f"--source={ROOT / 'circle_train'}", *pytest]
    status = subprocess.run(run, cwd=ROOT, env=environment, check=False).returncode
    if status > 1:  # a test that fails is others' affair, a test that is not there is not
        sys.exit(f"pytest ended with {status}")
    included = ",".join(f"{ROOT / place}{'' if place.endswith('.py') else '/*'}" for place in ROOMS.values())
    report = [*coverage, "json", "-q", f"--include={included}", "-o", str(PLACE / "report.json")]
    subprocess.run(report, cwd=ROOT, env=environment, check=True)


def rooms(report: dict[str, Any]) -> dict[str, tuple[int, int]]:
    """Branches that are taken, and all of them, by room."""
    found: dict[str, tuple[int, int]] = defaultdict(lambda: (0, 0))
    for name, file in report["files"].items():
        room = next(room for room, place in ROOMS.items() if place in name)
        taken, all_ = found[room]
        summary = file["summary"]
        found[room] = taken + summary["covered_branches"], all_ + summary["num_branches"]
    return found


def missing(report: dict[str, Any]) -> list[str]:
    lines = []
    for name, file in sorted(report["files"].items()):
        source = (ROOT / name).read_text(encoding="utf-8").splitlines()
        lines += [
            f"{name}:{start}: {source[start - 1].strip()} → {source[end - 1].strip() if end > 0 else 'the end'}"
            for start, end in file["missing_branches"]
        ]
    return lines


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--missing", action="store_true")
    parser.add_argument("--again", action="store_true")
    options = parser.parse_args()
    if not options.again:
        measured()
    report = json.loads((PLACE / "report.json").read_text())
    if options.missing:
        print("\n".join(missing(report)))
    found = rooms(report)
    for room, (taken, all_) in found.items():
        print(f"{room}: {taken} of {all_} branches, {taken / all_:.1%}")
    return int(any(taken < BAR * all_ for taken, all_ in found.values()))


if __name__ == "__main__":
    sys.exit(main())
