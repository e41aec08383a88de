#!/usr/bin/env python3
"""Break the code in one way after another and see whether the fast tests notice.

    python tools/dev/mutants.py --learn       run the fast suite once and note which test reaches which lines
                                --learn ops   the same of some rooms alone, which adds to what is known
    python tools/dev/mutants.py               all that are picked by hand; fails if more than one in twenty survives
    python tools/dev/mutants.py --random 40 --seed 3 [--kernels] [--within format checkpoints convert/onnx_file] [--of COMMIT]
    python tools/dev/mutants.py --only 3 17   some of them;  --list names them

Each mutant is one replacement in one file of a copy of the tree. The tests that reach the stretch of code run, those that reach
little else before others, until one fails; then those of its room that are new or start other processes: no other test can
notice it. Only who takes ten times the processor time that the tests took on the sound tree, or does nothing for minutes, does
not end: a busy machine kills no mutant. Learn again what has changed: a new test runs for mutants of its own room alone.
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import NoReturn

import pytest
from mutating.known import Reach, file_of
from mutating.picked import MUTANTS, Mutant
from mutating.slips import slips
from mutating.stretches import Stretch, stretch_of, stretches

ROOT = Path(__file__).resolve().parents[2]
REACH = ROOT / "build/reach"
IMPORTED = ("hypothesis", "flatbuffers", "onnx", "torch")
"""By many tests; once for all of them."""
EVERY = 1e9
"""Seconds that no tests take."""
ALLOWED = 0.05
"""Of the mutants may survive."""
STANDSTILL = 300.0
"""Seconds without any work, after which nothing is expected any more."""
GONE = "what it changes is no longer there"
"""Of a mistake that is drawn from another commit."""
SAME = "the same machine code"
"""Of a mistake that changes nothing, or in what is not compiled for this kind of vectors: no mutant."""


def stretch_around(mutant: Mutant, text: str) -> Stretch | None:
    """Where the change stands; None outside functions and in kernels."""
    if not mutant.path.endswith(".py"):
        return None
    pairs = enumerate(zip(mutant.old, mutant.new, strict=False))
    common = next((i for i, (a, b) in pairs if a != b), 0)
    line = text[: text.index(mutant.old) + common].count("\n") + 1
    return stretch_of(line, stretches(mutant.path, text))


def build(tree: Path) -> bool:
    """The kernels of a copy of the tree, for one kind of vectors, compiled into it."""
    native = tree / "circle_train/backends/native"
    made = tree / "build/mutants"
    options = ["-DCT_TIERS=portable"]
    options += ["-DCMAKE_CXX_COMPILER_LAUNCHER=ccache"] if shutil.which("ccache") else []
    environment = {"CCACHE_BASEDIR": str(tree), "CCACHE_NOHASHDIR": "1", **os.environ}
    commands = (["cmake", "-S", native, "-B", made, *options], ["cmake", "--build", made, "-j2"])
    for command in commands:
        if subprocess.run(command, capture_output=True, env=environment, check=False).returncode:
            return False
    for library in made.glob("*circle_train_native*"):
        shutil.copy(library, native)
    return True


def libraries(tree: Path) -> list[bytes]:
    return [
        path.read_bytes() for path in (tree / "circle_train/backends/native").glob("*circle_train_native*")
    ]


def run(tree: Path, tests: Sequence[str], seconds: float, **lists: Sequence[str]) -> str:
    """'' where the tests pass on this copy of the tree, else in which way they do not. Chosen by `-k` behind their place,
    and by lists of tests for the plugin (REACH_TESTS, REACH_LEFT)."""
    arguments = ["-x", "-q", "-p", "no:cacheprovider", "-p", "mutating.reach"]
    for test in tests:
        place, _, names = test.partition(" -k ")
        if (tree / place.partition("::")[0]).exists():
            arguments += [place, *(["-k", names] if names else [])]
    for name, listed in lists.items():
        (tree / name).write_text("\n".join(listed), encoding="utf-8")
    with tempfile.TemporaryFile("w+") as said:
        process = os.fork()  # what tests import besides ours is there already
        if not process:
            _test(tree, arguments, said.fileno(), lists)
        hangs, code = watched(process, 10 * seconds + 120)
        said.seek(0)
        failed = [line.strip() for line in said if line.startswith(("FAILED", "ERROR"))]
    if code == 5 and "REACH_LEFT" not in lists:
        raise SystemExit(f"none of these tests ran: {' '.join(tests)}; run --learn again")
    return "" if code in (0, 5) else hangs or (failed[0][:120] if failed else f"exit {code}")


def _test(tree: Path, arguments: Sequence[str], said: int, lists: Iterable[str]) -> NoReturn:
    """Run tests of that tree in this process, and end it."""
    for stream in (1, 2):
        os.dup2(said, stream)
    os.chdir(tree)
    sys.dont_write_bytecode = True
    sys.path[:1] = [str(tree), str(tree / "tools/dev")]
    os.environ.update(PYTHONPATH=os.pathsep.join(sys.path[:2]), PYTHONDONTWRITEBYTECODE="1")
    os.environ.update({name: str(tree / name) for name in lists})
    code = 3
    try:
        code = int(pytest.main([*arguments]))
    finally:
        sys.stdout.flush()
        os._exit(code)


def watched(process: int, limit: float) -> tuple[str, int]:
    """How a child ended: '' and its status; or that it worked without end, or waited for nobody, and was stopped."""
    spent, since = 0.0, time.monotonic()
    while not (ended := os.waitpid(process, os.WNOHANG))[0]:
        time.sleep(0.2)
        now = seconds_of(process)
        if now > spent + 0.1:
            spent, since = now, time.monotonic()
        idle = time.monotonic() - since
        if spent > limit or idle > STANDSTILL:
            os.kill(process, signal.SIGKILL)
            os.waitpid(process, 0)
            return f"does not end: {spent:.0f} s of processor time, nothing for {idle:.0f} s", 1
    return "", os.waitstatus_to_exitcode(ended[1])


def seconds_of(process: int) -> float:
    """Processor time that it and the children that it waited for took; what runs below it now counts too."""
    try:
        fields = Path(f"/proc/{process}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
        below = Path(f"/proc/{process}/task/{process}/children").read_text(encoding="utf-8").split()
    except OSError:
        return 0.0
    return sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK") + sum(
        seconds_of(int(pid)) for pid in below
    )


def verdict(mutant: Mutant, tree: Path, reach: Reach, most: float) -> str:
    """How the tests notice the broken copy; '' where it survives."""
    file = tree / "circle_train" / mutant.path
    sound = file.read_text(encoding="utf-8") if file.exists() else ""
    if mutant.old not in sound:
        return GONE
    file.write_text(sound.replace(mutant.old, mutant.new), encoding="utf-8")
    is_compiled = file.suffix in (".cpp", ".h")
    try:
        before = libraries(tree)
        if is_compiled and not build(tree):
            return "does not compile"
        if is_compiled and libraries(tree) == before:
            return SAME
        return next((found for found in _runs(mutant, sound, tree, reach, most) if found), "")
    finally:
        file.write_text(sound, encoding="utf-8")
        if is_compiled:
            build(tree)


def _runs(mutant: Mutant, sound: str, tree: Path, reach: Reach, most: float) -> Iterator[str]:
    """What the tests that could notice say of the broken copy, those of most promise first."""
    stretch = stretch_around(mutant, sound)
    names = reach.names(mutant.path, stretch and stretch.name)
    for lot, seconds in reach.lots(names, mutant.tests, most):
        yield run(tree, list(dict.fromkeys(map(file_of, lot))), seconds, REACH_TESTS=lot)
    if any(" -k " in test for test in mutant.tests):  # such a choice is for one place alone
        yield from (run(tree, [test], 120.0) for test in mutant.tests)
    elif stretch is None or stretch.is_remembered or stretch.name in reach.early:
        yield run(tree, mutant.tests, 120.0)
    elif most == EVERY:
        yield run(tree, mutant.tests, 120.0, REACH_LEFT=reach.indifferent(names))


def learn(rooms: Sequence[str]) -> int:
    """Room by room, so that what is known of one may be learned anew."""
    for room in rooms:
        shutil.rmtree(REACH / room, ignore_errors=True)
    if not rooms:
        shutil.rmtree(REACH, ignore_errors=True)
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "tools/dev")]),
        "REACH_LEARN": str(REACH),
    }
    command = [sys.executable, "-m", "pytest", "-q", "-p", "mutating.reach"]
    places = [f"tests/{room}" for room in rooms]
    return subprocess.run([*command, *places], cwd=ROOT, env=environment, check=False).returncode


def drawn(options: argparse.Namespace) -> Sequence[Mutant]:
    """Random mistakes; those of a commit stay the same when the tree changes."""
    lots = options.seed, options.random, options.kernels, options.within
    if not options.of:
        return slips(*lots)
    with tempfile.TemporaryDirectory() as folder:
        command = ["git", "archive", "--output", f"{folder}/tree.tar", options.of, "circle_train"]
        subprocess.run(command, cwd=ROOT, check=True)
        shutil.unpack_archive(f"{folder}/tree.tar", folder)
        return slips(*lots, Path(folder))


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--learn", nargs="*", metavar="ROOM", help="note which test reaches which lines, and stop"
    )
    parser.add_argument("--only", type=int, nargs="+", help="numbers of the mutants to try")
    parser.add_argument(
        "--random", type=int, default=0, metavar="N", help="N mistakes at random places instead"
    )
    parser.add_argument("--seed", type=int, default=0, help="of the random places")
    parser.add_argument("--kernels", action="store_true", help="random places of the C++")
    parser.add_argument(
        "--within", nargs="+", default=[""], metavar="FOLDER", help="random places of these alone"
    )
    parser.add_argument("--of", metavar="COMMIT", help="random places of that tree, made in this one")
    parser.add_argument(
        "--most", type=float, default=EVERY, metavar="SECONDS",
        help="of tests that reach it, and none besides; what they leave alive counts as surviving, though it need not",
    )  # fmt: skip
    parser.add_argument("--list", action="store_true", help="name them and stop")
    options = parser.parse_args()
    if options.learn is not None:
        return learn(options.learn)
    mutants = drawn(options) if options.random else MUTANTS
    chosen = [(i, m) for i, m in enumerate(mutants) if options.only is None or i in options.only]
    if options.list:
        print("\n".join(f"{number:2} {mutant.what} ({mutant.path})" for number, mutant in chosen))
        return 0
    words: list[str] = []
    reach = Reach(REACH)
    for package in IMPORTED:
        if find_spec(package):
            import_module(package)
    with tempfile.TemporaryDirectory() as folder:
        tree = Path(folder) / "tree"
        ignore = shutil.ignore_patterns(".git", "build", "__pycache__", ".mypy_cache", ".ruff_cache")
        shutil.copytree(ROOT, tree, ignore=ignore)
        if any(mutant.path.endswith((".cpp", ".h")) for _, mutant in chosen) and not build(tree):
            raise SystemExit("the kernels do not compile")
        for number, mutant in chosen:
            noticed = verdict(mutant, tree, reach, options.most)
            word = "no mutant" if noticed in (SAME, GONE) else "killed   " if noticed else "SURVIVES "
            print(f"{number:2} {word} {mutant.what}  ({noticed})", flush=True)
            words.append(word)
    killed, survive = words.count("killed   "), words.count("SURVIVES ")
    print(f"{killed} of {killed + survive} mutants killed")
    return 1 if survive > ALLOWED * (killed + survive) else 0


if __name__ == "__main__":
    sys.exit(main())
