#!/usr/bin/env python3
"""Damaged files of every kind, taken further than loading: our own error or the right result, within 10 s and 2 GB.

python tools/dev/fuzz.py                            20,000 cases, the first numbers of every target
python tools/dev/fuzz.py --cases 1000000            as many as one has time for
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
import faulthandler
import gc
import json
import multiprocessing
import os
import resource
import signal
import sys
import tempfile
import time
import traceback
import warnings
from collections import Counter, defaultdict, deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np
from fuzz_cases import TARGETS, Large, ct, kept

SECONDS, BYTES = 10.0, 2 << 30
"""What a case may take: of a processor, and of memory."""
PATIENCE = 12
"""How many times as long it may take by the clock: other programs run too, and what waits for ever takes no processor."""
CHUNK = 200
"""Cases that a process runs before it gives way to a fresh one."""
SHARES = {"model": 8, "onnx": 6, "checkpoint": 2, "package": 1, "settings": 2, "data": 2, "image": 1}
CONTEXT = multiprocessing.get_context("fork")


@dataclass
class Figures:
    """What came of the cases of a target."""

    outcomes: Counter[str] = field(default_factory=Counter)
    findings: dict[str, list[int]] = field(default_factory=lambda: defaultdict(list))
    """By what was found and where: the numbers of the cases."""
    details: dict[str, str] = field(default_factory=dict)
    """What the first of them said."""


def outcome(target: str, number: int) -> str:
    """ "done", "large", the name of our error; of what is not ours, its name and place behind an exclamation mark."""
    try:
        case, rng = TARGETS[target].made(target, number)
        with tempfile.TemporaryDirectory() as folder:
            TARGETS[target].run(case, rng, Path(folder))
    except Large:
        return "large"
    except ct.CircleTrainError as error:
        return type(error).__name__
    except Exception as error:
        return f"!{type(error).__name__} at {place_of(error)}: {str(error)[:150]}"
    return "done"


def place_of(error: BaseException) -> str:
    """The innermost line of ours."""
    frames = [f for f in traceback.extract_tb(error.__traceback__) if "circle_train/" in f.filename]
    if not frames:
        frames = list(traceback.extract_tb(error.__traceback__))[-1:]
    return (
        f"{frames[-1].filename.rpartition('circle_train/')[2]}:{frames[-1].lineno}" if frames else "nowhere"
    )


# Processes


class Worker:
    """A process that runs some cases of a target and says of each what came of it."""

    def __init__(self, target: str, numbers: range, limit: bool) -> None:
        self.target, self.numbers = target, numbers
        self.receiver, sender = CONTEXT.Pipe(duplex=False)
        self.log = tempfile.TemporaryFile()  # noqa: SIM115 -- the process has it for as long as it runs
        self.process = CONTEXT.Process(target=_work, args=(target, numbers, sender, self.log, limit))
        self.process.start()
        sender.close()
        self.done = 0
        self.since = self.used(), time.monotonic()

    def used(self) -> float:
        """Seconds of a processor; by the clock where the system does not say."""
        try:
            fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            return time.monotonic()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    @property
    def hangs(self) -> bool:
        used, at = self.since
        late = self.used() - used > SECONDS or time.monotonic() - at > PATIENCE * SECONDS
        return late and self.process.is_alive()

    def take(self, figures: Figures) -> None:
        """Note what was said since the last time."""
        try:
            while self.receiver.poll():
                self.note(self.receiver.recv(), figures)
        except EOFError:
            pass

    def note(self, said: str, figures: Figures) -> None:
        number = self.numbers[self.done]
        figures.outcomes["finding" if said.startswith("!") else said] += 1
        if said.startswith("!"):
            what, _, detail = said[1:].partition(": ")
            figures.findings[what].append(number)
            figures.details.setdefault(what, detail)
        self.done += 1
        self.since = self.used(), time.monotonic()

    def rest(self, figures: Figures) -> range | None:
        """The cases that a fresh process has to go on with; None while this one is at work."""
        self.take(figures)
        hangs = self.hangs
        if self.process.is_alive() and not hangs:
            return None
        if hangs:
            os.kill(self.process.pid or 0, signal.SIGABRT)  # faulthandler says where it was
            self.process.join(1)
            self.process.kill()
        self.process.join()
        self.take(figures)
        if self.done < len(self.numbers):
            self.log.seek(0)
            self.note(
                f"!{'hang' if hangs else _ending(self.process.exitcode)} {_where(self.log.read())}", figures
            )
        self.log.close()
        return self.numbers[self.done :]


def _work(target: str, numbers: range, sender: Connection, log: Any, limited: bool) -> None:
    faulthandler.enable(log, all_threads=False)
    os.dup2(log.fileno(), 2)
    warnings.simplefilter("ignore")
    if limited:
        size = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (size + BYTES, size + BYTES))
        resource.setrlimit(resource.RLIMIT_FSIZE, (BYTES, BYTES))
    gc.freeze()
    for number in numbers:
        sender.send(outcome(target, number))


def _ending(status: int | None) -> str:
    return signal.Signals(-status).name if status is not None and status < 0 else f"exit status {status}"


def _where(log: bytes) -> str:
    """The innermost of our lines in what faulthandler wrote, or a sanitizer's report."""
    lines = log.decode(errors="replace").splitlines()
    reports = [line for line in lines if "runtime error:" in line or "ERROR: AddressSanitizer" in line]
    ours = [line for line in lines if "circle_train/" in line and "File " in line]
    return (reports or [line.strip() for line in ours] or lines[-1:] or [""])[0][:200]


def run(
    targets: Sequence[str], numbers: dict[str, range], processes: int, limited: bool
) -> dict[str, Figures]:
    """All cases, by so many processes at a time."""
    figures = {target: Figures() for target in targets}
    waiting = deque((target, chunk) for target in targets for chunk in chunks(numbers[target], CHUNK))
    for target in targets:
        TARGETS[target].seeds()
    workers: list[Worker] = []
    while waiting or workers:
        while waiting and len(workers) < processes:
            workers.append(Worker(*waiting.popleft(), limited))
        time.sleep(0.02)
        for worker in list(workers):
            rest = worker.rest(figures[worker.target])
            if rest is not None:
                workers.remove(worker)
                if rest:
                    waiting.appendleft((worker.target, rest))
    return figures


def chunks(numbers: range, size: int) -> list[range]:
    return [numbers[start : start + size] for start in range(0, len(numbers), size)]


# The command


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
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures there too")
    parser.add_argument("--kept", action="store_true", help="only what earlier runs have found")
    parser.add_argument("--sanitized", action="store_true", help="on kernels built with sanitizers")
    options = parser.parse_args()
    if options.sanitized:
        return sanitized([word for word in sys.argv[1:] if word != "--sanitized"])
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
    figures = run(targets, numbers, options.processes, "LD_PRELOAD" not in os.environ)
    print(table(figures))
    found = [(target, what, cases) for target, of in figures.items() for what, cases in of.findings.items()]
    for target, what, cases in sorted(found, key=lambda f: -len(f[2])):
        print(f"{target}:{cases[0]} ({len(cases)} cases)  {what}  {figures[target].details[what]}")
    cases = sum(sum(of.outcomes.values()) for of in figures.values())
    print(f"{cases} cases in {time.monotonic() - start:.0f} s, {len(found)} findings")
    if options.json:
        options.json.write_text(
            json.dumps({t: [dict(of.outcomes), dict(of.findings)] for t, of in figures.items()})
        )
    return 1 if found else 0


def sanitized(words: list[str]) -> int:
    """The same command on a copy of the package with sanitized kernels."""
    import sanitize

    compiler = os.environ.get("CXX", "g++")
    library = sanitize.build(sanitize.ROOT / "build" / "sanitize", compiler)
    status, output = sanitize.run(library, compiler, ["tools/dev/fuzz.py", *words])
    print(output)
    return status


if __name__ == "__main__":
    np.seterr(all="ignore")
    sys.exit(main())
