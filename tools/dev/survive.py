"""Put every model of a folder through the whole course, each in a process of its own, and print who survives, and why not.

The course: load; predict at two sizes as the original's own runtime does (onnxruntime, LiteRT); train the last five
operators, then all; export to .tflite, run that file in LiteRT, and for an .onnx model the .onnx in onnxruntime.

    python tools/dev/survive.py FOLDER... [--seconds 150] [--gigabytes 6] [--json table.json] [--only NAME]
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

SUFFIXES = (".onnx", ".tflite", ".circle")
STAGES = ("load", "match", "train last 5", "train all", "export .tflite", "export .onnx")
COURSE = Path(__file__).parent / "comparing" / "survive_course.py"
WANTED = 0.9
"""The share of models that must come through every stage for exit status 0."""
SHOWN = 170


def models_in(folders: Iterable[str], only: str = "") -> list[Path]:
    """All models below the folders, or named themselves; the same file twice is taken once."""
    found = []
    for folder in map(Path, folders):
        inside = [folder] if folder.is_file() else sorted(folder.rglob("*"))
        found += [path for path in inside if path.suffix.lower() in SUFFIXES and only in path.name]
    return list(dict.fromkeys(found))


def run(path: Path, seconds: int, gigabytes: float) -> dict[str, Any]:
    """What the course says of one model; a process that dies or does not end says it in its place."""
    command = [sys.executable, str(COURSE), str(path), str(gigabytes)]
    stages: dict[str, Any] = {}
    try:
        process = subprocess.run(command, check=False, capture_output=True, text=True, timeout=seconds)
        lines, end = process.stdout.splitlines(), f"died with status {process.returncode}"
        stages |= {} if process.returncode else {"": True}
    except subprocess.TimeoutExpired as error:
        lines = (error.stdout or b"").decode(errors="replace").splitlines()
        end = f"no end within {seconds} s"
    for line in lines:
        if line.startswith("STAGE "):
            stages |= json.loads(line[6:])
    if "" not in stages:
        missing = next((stage for stage in STAGES if stage not in stages), STAGES[-1])
        stages[missing] = end
    stages.pop("", None)
    return stages


def summary(table: dict[str, dict[str, Any]]) -> list[str]:
    """One line a stage: how many of those that it concerns came through, and the commonest reasons."""
    lines = []
    for stage in STAGES:
        results = [
            row.get(stage, "not reached")
            for row in table.values()
            if row.get(stage) is not None or stage in row
        ]
        concerned = [result for result in results if result is not None]
        reasons = Counter(str(result).split(":")[0][:60] for result in concerned if result is not True)
        common = ", ".join(f"{count} × {reason}" for reason, count in reasons.most_common(3))
        good = sum(result is True for result in concerned)
        lines.append(f"{stage:>15}: {good} of {len(concerned)}{' (' + common + ')' if common else ''}")
    return lines


def share(table: dict[str, dict[str, Any]]) -> float:
    """The worst stage's share of those that it concerns."""
    shares = []
    for stage in STAGES:
        results = [row[stage] for row in table.values() if row.get(stage) is not None]
        shares.append(sum(r is True for r in results) / len(results) if results else 1.0)
    return min(shares)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folders", nargs="+")
    parser.add_argument("--seconds", type=int, default=150)
    parser.add_argument("--gigabytes", type=float, default=6)
    parser.add_argument("--json", help="also write the whole table here")
    parser.add_argument("--only", default="", help="models with this in their name")
    options = parser.parse_args()
    table: dict[str, dict[str, Any]] = {}
    for path in models_in(options.folders, options.only):
        table[str(path)] = row = run(path, options.seconds, options.gigabytes)
        failures = [f"{k}: {str(v)[:SHOWN]}" for k, v in row.items() if v is not True and v is not None]
        print(f"{path.name}  {'; '.join(failures) or 'all'}", flush=True)
    print("\n".join([f"{len(table)} models", *summary(table)]))
    if options.json:
        Path(options.json).write_text(json.dumps(table, indent=1))
    return int(share(table) < WANTED)


if __name__ == "__main__":
    sys.exit(main())
