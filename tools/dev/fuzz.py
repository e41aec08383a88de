#!/usr/bin/env python3
"""Damaged files of every kind, taken further than loading: our own error or the right result, within 10 s and 2 GB.

python tools/dev/fuzz.py                            20,000 cases, the first numbers of every target
python tools/dev/fuzz.py --cases 1000000 --record FILE   as many as one has time for: begun again, it goes on where it was
python tools/dev/fuzz.py onnx --first 5000          of one target, from another number on
python tools/dev/fuzz.py --kept                     what earlier runs have found, as it was found (tests/data/fuzz)
python tools/dev/fuzz.py --case model:1234          one again, in this process, with its traceback
python tools/dev/fuzz.py --sanitized                on kernels built with the address and undefined-behaviour sanitizers

A case is a target and a number and can be had again from these two. Each runs in a process of its own kind: what kills
or hangs that process is a finding as an exception that is not ours is. Findings of one place in the code are listed once.
Exit status 1 where something was found.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from fuzzing.cases import TARGETS
from fuzzing.models import kept
from fuzzing.workers import BYTES, Figures, run

from circle_train.backends.native import Native

SHARES = {
    "model": 8, "onnx": 6, "checkpoint": 2, "package": 1, "settings": 2, "data": 2, "image": 1,
    "sound": 1, "text": 1, "table": 1, "described": 1, "quantized": 2, "record": 1,
}  # fmt: skip


def again(word: str) -> int:
    """One case with its traceback."""
    target, _, number = word.partition(":")
    case, rng = TARGETS[target].made(target, int(number))
    with tempfile.TemporaryDirectory() as folder:
        TARGETS[target].run(case, rng, Path(folder))
    print("done")
    return 0


def write(word: str, place: Path) -> int:
    """One case's file; what is no single file as Python shows it."""
    target, _, number = word.partition(":")
    case, _ = TARGETS[target].made(target, int(number))
    content = case[1] if isinstance(case, tuple) else case
    text = content if isinstance(content, str) else repr(content)
    place.write_bytes(content if isinstance(content, bytes) else text.encode())
    print(f"{place}: {place.stat().st_size} bytes")
    return 0


def read(record: Path | None, targets: Sequence[str]) -> tuple[float, dict[str, Figures]]:
    """The seconds and the figures of an earlier run of these targets; of none, where there was none."""
    figures = {target: Figures() for target in targets}
    if record is None or not record.exists():
        return 0.0, figures
    found = json.loads(record.read_text())
    for target, of in found["targets"].items():
        findings = defaultdict(list, of["findings"])
        done = [range(start, stop) for start, stop in of["done"]]
        figures[target] = Figures(Counter(of["outcomes"]), findings, of["details"], done)
    return found["seconds"], figures


def write_record(record: Path, seconds: float, figures: dict[str, Figures]) -> None:
    targets = {
        target: {**vars(of), "done": [[numbers.start, numbers.stop] for numbers in of.done]}
        for target, of in figures.items()
    }
    beside = record.with_name(f"{record.name}.new")
    beside.write_text(json.dumps({"seconds": seconds, "targets": targets}, indent=1))
    beside.replace(record)


def table(figures: dict[str, Figures]) -> str:
    names = sorted({name for of in figures.values() for name in of.outcomes})
    rows = [["target", "cases", *names]]
    for target, of in figures.items():
        rows.append([target, str(sum(of.outcomes.values())), *(str(of.outcomes[name]) for name in names)])
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    return "\n".join("  ".join(word.rjust(w) for word, w in zip(row, widths, strict=True)) for row in rows)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("targets", nargs="*", metavar="TARGET", help=", ".join(TARGETS))
    parser.add_argument("--cases", type=int, default=20_000, help="of all targets together (default: 20000)")
    parser.add_argument("--first", type=int, default=0, help="the first number of each target (default: 0)")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--case", metavar="TARGET:NUMBER", help="run this one here")
    parser.add_argument("--write", type=Path, metavar="FILE", help="with --case: write its file instead")
    parser.add_argument("--record", type=Path, metavar="FILE", help="keep figures there, and go on from them")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures there too")
    parser.add_argument("--kept", action="store_true", help="only what earlier runs have found")
    parser.add_argument("--sanitized", action="store_true", help="on kernels built with sanitizers")
    options = parser.parse_args()
    if options.sanitized:
        places = {str(options.record): str(options.record and options.record.resolve())}  # it runs elsewhere
        return sanitized([places.get(word, word) for word in sys.argv[1:] if word != "--sanitized"])
    Native(1)  # an error where it was not built: numpy alone would leave the kernels untried
    if options.case:
        return write(options.case, options.write) if options.write else again(options.case)
    targets = options.targets or list(TARGETS)
    total = sum(SHARES[target] for target in targets)
    numbers = {
        t: range(options.first, options.first + -(-options.cases * SHARES[t] // total)) for t in targets
    }
    if options.kept:
        targets = [target for target in targets if kept(target)]
        numbers = {target: range(-len(kept(target)), 0) for target in targets}
    start = time.monotonic()
    record = options.record
    before, figures = read(record, targets)

    def save() -> None:
        if record:
            write_record(record, before + time.monotonic() - start, figures)

    run(figures, numbers, options.processes, "LD_PRELOAD" not in os.environ, save)
    print(table(figures))
    found = [(target, what, cases) for target, of in figures.items() for what, cases in of.findings.items()]
    for target, what, cases in sorted(found, key=lambda f: -len(f[2])):
        print(f"{target}:{cases[0]} ({len(cases)} cases)  {what}  {figures[target].details[what]}")
    cases = sum(sum(of.outcomes.values()) for of in figures.values())
    print(f"{cases} cases in {before + time.monotonic() - start:.0f} s, {len(found)} findings")
    if options.json:
        options.json.write_text(
            json.dumps({t: [dict(of.outcomes), dict(of.findings)] for t, of in figures.items()})
        )
    return 1 if found else 0


def sanitized(words: list[str]) -> int:
    """The same command on a copy of the package with sanitized kernels, of which none gets more than a case may take."""
    import sanitize

    compiler = os.environ.get("CXX", "g++")
    library = sanitize.of_tier(sanitize.widest(), compiler)
    limits = ["allocator_may_return_null=1", f"max_allocation_size_mb={BYTES >> 20}"]
    with sanitize.beside(library, compiler, *limits) as python:
        status, output = python("tools/dev/fuzz.py", *words)
    print(output)
    return status


if __name__ == "__main__":
    np.seterr(all="ignore")
    sys.exit(main())
