#!/usr/bin/env python3
"""Break the code in one way after another and see whether the fast tests notice.

    python tools/dev/mutants.py --learn       run the fast suite once and note which test reaches which function
                                --learn ops   the same of some rooms alone, which adds to what is known
    python tools/dev/mutants.py               all that are picked by hand; fails if more than one in twenty survives
    python tools/dev/mutants.py --random 40 --seed 3 [--kernels] [--within format checkpoints convert/onnx_file]
    python tools/dev/mutants.py --only 3 17   some of them;  --list names them

Each mutant is one replacement in one file of a copy of the tree. The tests that reach the function run first, those that reach
little else before others, then the rest of them, then the tests of the room; nothing after the first failure. Only who takes
ten times the processor time that the tests took on the sound tree, or does nothing for minutes, does not end: a busy machine
kills no mutant. What was learned may be old: it saves time, and decides nothing.
"""

from __future__ import annotations

import argparse
import ast
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import NoReturn

import numpy as np
import pytest
from mutating.picked import MUTANTS, Mutant
from mutating.slips import slips

ROOT = Path(__file__).resolve().parents[2]
REACH = ROOT / "build/reach"
IMPORTED = ("hypothesis", "flatbuffers", "onnx", "torch")
"""By many tests; once for all of them."""
ALLOWED = 0.05
"""Of the mutants may survive."""
LOTS = ((5, 15.0), (1000, 60.0), (1000, 1e9))
"""From how many files tests are taken at a time, and for how many seconds: whoever is noticed soon costs little."""
STANDSTILL = 300.0
"""Seconds without any work, after which nothing is expected any more."""
SAME = "the same machine code"
"""Of a mistake that changes nothing, or in what is not compiled for this kind of vectors: no mutant."""
PER_FILE = 3
"""Tests of each file that are tried before others of the same file."""


class Reach:
    """Which tests reach which function, as the last `--learn` found."""

    def __init__(self, folder: Path) -> None:
        self.seconds: dict[str, float] = {}
        self._sizes: dict[str, int] = {}
        self._tests: dict[str, list[str]] = {}
        for file in sorted(folder.rglob("*.npz")):
            self._read(np.load(file))

    def _read(self, stored: np.lib.npyio.NpzFile) -> None:
        tests, functions = stored["tests"].tolist(), stored["functions"].tolist()
        table = np.unpackbits(stored["table"], axis=1, count=len(functions)).astype(bool)
        self.seconds.update(zip(tests, stored["seconds"].tolist(), strict=True))
        self._sizes.update(zip(tests, table.sum(axis=1).tolist(), strict=True))
        for number, function in enumerate(functions):
            self._tests.setdefault(function, []).extend(tests[i] for i in np.flatnonzero(table[:, number]))

    def tests_of(self, function: str, near: tuple[str, ...]) -> list[str]:
        """Those of its own room first, and those that reach little else; a few of each file before the others of it."""
        found = sorted(
            self._tests.get(function, ()), key=lambda test: (self._sizes[test], self.seconds[test])
        )
        taken: dict[str, int] = {}
        ranks: dict[str, tuple[bool, bool]] = {}
        for test in found:
            file = file_of(test)
            taken[file] = taken.get(file, 0) + 1
            ranks[test] = (not file.startswith(near), taken[file] > PER_FILE)
        return sorted(found, key=ranks.__getitem__)

    def lots(self, function: str, near: tuple[str, ...]) -> Iterator[tuple[list[str], float]]:
        """Tests to run one lot after the other, and the seconds that each lot took."""
        waiting = self.tests_of(function, near)
        for most_files, most_seconds in LOTS:
            files = list(dict.fromkeys(file_of(test) for test in waiting))[:most_files]
            lot, seconds = [], 0.0
            for test in waiting:
                if file_of(test) in files and seconds < most_seconds:
                    lot.append(test)
                    seconds += self.seconds[test]
            if lot:
                yield lot, seconds
            taken = set(lot)
            waiting = [test for test in waiting if test not in taken]


def file_of(test: str) -> str:
    return test.partition("::")[0]


def function_of(mutant: Mutant, text: str) -> str:
    """`room/file.py:Class.method` around the change; '' outside functions and in kernels."""
    if not mutant.path.endswith(".py"):
        return ""
    pairs = enumerate(zip(mutant.old, mutant.new, strict=False))
    common = next((i for i, (a, b) in pairs if a != b), 0)
    line = text[: text.index(mutant.old) + common].count("\n") + 1
    name = _innermost(ast.parse(text), line, "")
    return f"{mutant.path}:{name}" if name else ""


def _innermost(scope: ast.AST, line: int, prefix: str) -> str:
    for node in ast.walk(scope) if isinstance(scope, ast.Module) else ast.iter_child_nodes(scope):
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)) and node.lineno <= line <= (
            node.end_lineno or 0
        ):
            is_class = isinstance(node, ast.ClassDef)
            inner = _innermost(node, line, f"{prefix}{node.name}." + ("" if is_class else "<locals>."))
            return inner or ("" if is_class else f"{prefix}{node.name}")
    return ""


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


def run(tree: Path, tests: Sequence[str], seconds: float, wanted: Sequence[str] = ()) -> str:
    """'' where the tests pass on this copy of the tree, else in which way they do not. Chosen by `-k` behind their place."""
    chosen = tree / "wanted.txt"
    chosen.write_text("\n".join(wanted), encoding="utf-8")
    arguments = ["-x", "-q", "-p", "no:cacheprovider", "-p", "mutating.reach"]
    for test in tests:
        place, _, names = test.partition(" -k ")
        if (tree / place.partition("::")[0]).exists():
            arguments += [place, *(["-k", names] if names else [])]
    with tempfile.TemporaryFile("w+") as said:
        process = os.fork()  # what tests import besides ours is there already
        if not process:
            _test(tree, arguments, said.fileno(), str(chosen) if wanted else "")
        hangs, code = watched(process, 10 * seconds + 120)
        said.seek(0)
        failed = [line.strip() for line in said if line.startswith(("FAILED", "ERROR"))]
    if code == 5:
        raise SystemExit(f"none of these tests ran: {' '.join(tests)}; run --learn again")
    return "" if not code else hangs or (failed[0][:120] if failed else f"exit {code}")


def _test(tree: Path, arguments: Sequence[str], said: int, wanted: str) -> NoReturn:
    """Run tests of that tree in this process, and end it."""
    for stream in (1, 2):
        os.dup2(said, stream)
    os.chdir(tree)
    sys.dont_write_bytecode = True
    sys.path[:1] = [str(tree), str(tree / "tools/dev")]
    os.environ.update(PYTHONPATH=os.pathsep.join(sys.path[:2]), PYTHONDONTWRITEBYTECODE="1")
    if wanted:
        os.environ["REACH_TESTS"] = wanted
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


def verdict(mutant: Mutant, tree: Path, reach: Reach) -> str:
    """How the tests notice the broken copy; '' where it survives."""
    file = tree / "circle_train" / mutant.path
    sound = file.read_text(encoding="utf-8")
    if mutant.old not in sound:
        raise SystemExit(
            f"'{mutant.what}': {mutant.path} no longer holds {mutant.old!r}; bring the mutant up to date"
        )
    function = function_of(mutant, sound)
    lots = list(reach.lots(function, mutant.tests)) if function else []
    file.write_text(sound.replace(mutant.old, mutant.new), encoding="utf-8")
    is_compiled = file.suffix in (".cpp", ".h")
    try:
        before = libraries(tree)
        if is_compiled and not build(tree):
            return "does not compile"
        if is_compiled and libraries(tree) == before:
            return SAME
        ways = [(list(dict.fromkeys(map(file_of, lot))), seconds, lot) for lot, seconds in lots]
        one_by_one = any(" -k " in test for test in mutant.tests)  # such a choice is for one place alone
        for tests in [[test] for test in mutant.tests] if one_by_one else [list(mutant.tests)]:
            ways.append((tests, 120.0, []))
        return next((found for way in ways if (found := run(tree, *way))), "")
    finally:
        file.write_text(sound, encoding="utf-8")
        if is_compiled:
            build(tree)


def learn(rooms: Sequence[str]) -> int:
    """Room by room, so that what is known of one may be learned anew."""
    path = os.pathsep.join([str(ROOT), str(ROOT / "tools/dev")])
    command = [sys.executable, "-m", "pytest", "-q", "-p", "mutating.reach"]
    codes = []
    for room in rooms or sorted(place.name for place in (ROOT / "tests").iterdir()):
        folder = REACH / room
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        environment = {**os.environ, "PYTHONPATH": path, "REACH_LEARN": str(folder)}
        codes += [
            subprocess.run([*command, f"tests/{room}"], cwd=ROOT, env=environment, check=False).returncode
        ]
    return max(codes)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--learn", nargs="*", metavar="ROOM", help="note which test reaches which function, and stop"
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
    parser.add_argument("--list", action="store_true", help="name them and stop")
    options = parser.parse_args()
    if options.learn is not None:
        return learn(options.learn)
    lots = options.seed, options.random, options.kernels, options.within
    mutants = slips(*lots) if options.random else MUTANTS
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
            noticed = verdict(mutant, tree, reach)
            word = "no mutant" if noticed == SAME else "killed   " if noticed else "SURVIVES "
            print(f"{number:2} {word} {mutant.what}  ({noticed})", flush=True)
            words.append(word)
    killed, survive = words.count("killed   "), words.count("SURVIVES ")
    print(f"{killed} of {killed + survive} mutants killed")
    return 1 if survive > ALLOWED * (killed + survive) else 0


if __name__ == "__main__":
    sys.exit(main())
