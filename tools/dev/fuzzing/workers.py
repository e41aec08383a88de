"""The fuzzer's processes: each runs some cases of a target, and what kills or hangs it is a finding."""

from __future__ import annotations

import faulthandler
import gc
import multiprocessing
import os
import resource
import signal
import tempfile
import time
import traceback
import warnings
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from fuzzing.cases import TARGETS
from fuzzing.models import Large, ct

SECONDS, BYTES = 10.0, 2 << 30
"""What a case may take: of a processor, and of memory."""
PATIENCE = 12
"""How many times as long it may wait by the clock: what waits for ever takes no processor."""
CHUNK = 200
"""Cases that a process runs before it gives way to a fresh one."""
IN_MEMORY = next((place for place in ("/dev/shm",) if os.access(place, os.W_OK)), None)
"""Where a case has its files: what is written there is synced at once, which on a disk takes longer than the case."""
CONTEXT = multiprocessing.get_context("fork")


@dataclass
class Figures:
    """What came of the cases of a target."""

    outcomes: Counter[str] = field(default_factory=Counter)
    findings: dict[str, list[int]] = field(default_factory=lambda: defaultdict(list))
    """By what was found and where: the numbers of the cases."""
    details: dict[str, str] = field(default_factory=dict)
    """What the first of them said."""
    done: list[range] = field(default_factory=list)
    """Which cases these are; neighbours are one range."""

    def note(self, number: int, said: str) -> None:
        self.outcomes["finding" if said.startswith("!") else said] += 1
        if said.startswith("!"):
            what, _, detail = said[1:].partition(": ")
            self.findings[what].append(number)
            self.details.setdefault(what, detail)
        self.has(range(number, number + 1))

    def has(self, numbers: range) -> None:
        if self.done and self.done[-1].stop == numbers.start:
            numbers = range(self.done.pop().start, numbers.stop)
        self.done.append(numbers)

    def add(self, others: Figures) -> None:
        self.outcomes += others.outcomes
        for what, numbers in others.findings.items():
            self.findings[what] += numbers
        self.details = {**others.details, **self.details}
        every = sorted([*self.done, *others.done], key=lambda numbers: numbers.start)
        self.done = []
        for numbers in every:
            self.has(numbers)


def outcome(target: str, number: int) -> str:
    """ "done", "large", the name of our error; of what is not ours, its name and place behind an exclamation mark."""
    try:
        case, rng = TARGETS[target].made(target, number)
        with tempfile.TemporaryDirectory(dir=IN_MEMORY) as folder:
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
        self.figures = Figures()
        self.begin()

    def begin(self) -> None:
        """Another case."""
        self.used, self.waited, self.seen = self.state()[1], 0.0, time.monotonic()

    def state(self) -> tuple[str, float]:
        """What the system says: whether it runs ("R"), waits or is gone, and its seconds of a processor."""
        try:
            fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            return "", 0.0
        return fields[0], (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    @property
    def hangs(self) -> bool:
        """Waiting counts where it waits by itself: not where others have the processor or everything is frozen."""
        state, used = self.state()
        now = time.monotonic()
        self.waited += 0.0 if state == "R" else min(now - self.seen, 1.0)
        self.seen = now
        late = used - self.used > SECONDS or self.waited > PATIENCE * SECONDS
        return late and self.process.is_alive()

    @property
    def left(self) -> range:
        return self.numbers[sum(self.figures.outcomes.values()) :]

    def take(self) -> None:
        """Note what was said since the last time."""
        try:
            while self.receiver.poll():
                said = self.receiver.recv()
                self.figures.note(self.left[0], said)
                self.begin()
        except EOFError:
            pass

    def rest(self) -> range | None:
        """The cases that a fresh process has to go on with; None while this one is at work."""
        self.take()
        hangs = self.hangs
        if self.process.is_alive() and not hangs:
            return None
        if hangs:
            os.kill(self.process.pid or 0, signal.SIGABRT)  # faulthandler says where it was
            self.process.join(1)
            self.process.kill()
        self.process.join()
        self.take()
        if self.left:
            self.log.seek(0)
            ended = "hang" if hangs else _ending(self.process.exitcode)
            self.figures.note(self.left[0], f"!{ended} {_where(self.log.read())}")
        self.log.close()
        return self.left


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
    figures: dict[str, Figures],
    numbers: dict[str, range],
    processes: int,
    limited: bool,
    record: Callable[[], None] = lambda: None,
) -> None:
    """All cases that the figures do not have yet, by so many processes at a time."""
    waiting = deque(shared({t: remaining(numbers[t], of.done) for t, of in figures.items()}))
    for target in {target for target, _ in waiting}:
        TARGETS[target].seeds()
    workers: list[Worker] = []
    while waiting or workers:
        while waiting and len(workers) < processes:
            workers.append(Worker(*waiting.popleft(), limited))
        time.sleep(0.02)
        for worker in list(workers):
            rest = worker.rest()
            if rest is not None:
                workers.remove(worker)
                figures[worker.target].add(worker.figures)
                record()
                if rest:
                    waiting.appendleft((worker.target, rest))


def remaining(numbers: range, done: Sequence[range]) -> list[range]:
    """What of the numbers is in none of those ranges, in chunks."""
    found, start = [], numbers.start
    for had in [*done, range(numbers.stop, numbers.stop)]:
        found += chunks(range(start, min(had.start, numbers.stop)), CHUNK)
        start = max(start, had.stop)
    return found


def chunks(numbers: range, size: int) -> list[range]:
    return [numbers[start : start + size] for start in range(0, len(numbers), size)]


def shared(waiting: dict[str, list[range]]) -> list[tuple[str, range]]:
    """The chunks of all targets side by side, so that a run that is broken off has figures of each."""
    placed = [(i / len(of), t, chunk) for t, of in waiting.items() for i, chunk in enumerate(of)]
    return [(target, chunk) for _, target, chunk in sorted(placed, key=lambda item: item[:2])]
