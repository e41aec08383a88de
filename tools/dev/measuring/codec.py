"""Model files read and written by us and by the package flatbuffers alone: CPU milliseconds side by side.

    python tools/dev/measuring/codec.py MODEL_OR_FOLDER … [--rounds 3]

Reading: every field of every table, by our decoder, which checks offsets before it follows them, and by the getters that flatc
generates (package tflite), which trust them. Writing: all tables anew with large constants kept out of the builder, and with
flatbuffers.Builder holding everything.
"""

from __future__ import annotations

import argparse
import inspect
import time
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import flatbuffers
import numpy as np
import tflite

from circle_train.errors import CircleTrainError
from circle_train.format.flatbuffer.decode import decode
from circle_train.format.flatbuffer.encode import Encoder, encode
from circle_train.format.flatbuffer.schema import TABLES, TFLITE_TABLES

KNOWN = TABLES | TFLITE_TABLES
UNIONS = {"BuiltinOptions": tflite.BuiltinOptions, "BuiltinOptions2": tflite.BuiltinOptions2}


class Whole(Encoder):
    """Large constants go through the builder as everything else does."""

    apart = None


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("paths", nargs="+", type=Path)
    parser.add_argument("--rounds", type=int, default=3, help="the fastest counts (default: 3)")
    options = parser.parse_args()
    totals = np.zeros(4)
    print(f"{'MB':>7} {'read: ours':>12} {'getters':>9} {'write: ours':>12} {'builder':>9}")
    for path in files(options.paths):
        try:
            seconds = np.array(measured(path.read_bytes(), options.rounds))
        except CircleTrainError as error:
            print(f"left out: {error}")
            continue
        totals += seconds
        print(line(path.stat().st_size, seconds), path.name)
    print(line(0, totals), "together")
    read, write = totals[1] / totals[0], totals[3] / totals[2]
    print(f"the package alone takes {read:.2f} times as long to read, {write:.2f} times to write")


def files(paths: list[Path]) -> Iterator[Path]:
    for path in paths:
        yield from sorted(path.rglob("*.tflite")) if path.is_dir() else [path]


def measured(data: bytes, rounds: int) -> list[float]:
    """Reading by us and by them, writing by us and by them, in turns."""
    array = np.frombuffer(data, np.uint8)
    table = decode(array, "Model", b"TFL3", KNOWN, "the file")

    def whole() -> None:
        encoder = Whole(KNOWN)
        encoder.builder.Finish(encoder.table("Model", table), b"TFL3")
        encoder.finish()

    works: list[Callable[[], object]] = [
        lambda: decode(array, "Model", b"TFL3", KNOWN, "the file"),
        lambda: walked(tflite.Model.GetRootAs(data, 0)),
        lambda: encode("Model", table, b"TFL3", KNOWN),
        whole,
    ]
    best = [float("inf")] * len(works)
    for _ in range(rounds):
        for i, work in enumerate(works):
            start = time.process_time()
            work()
            best[i] = min(best[i], time.process_time() - start)
    return best


def walked(table: Any) -> dict[str, Any]:
    """Everything that the generated getters reach; vectors of numbers as views."""
    found: dict[str, Any] = {}
    for name, length, as_numpy in getters(type(table)):
        if as_numpy:
            found[name] = getattr(table, as_numpy)()
        elif length:
            found[name] = [value_of(getattr(table, name)(i)) for i in range(getattr(table, length)())]
        else:
            value = getattr(table, name)()
            found[name] = (
                member(table, name, value) if isinstance(value, flatbuffers.table.Table) else value_of(value)
            )
    return found


@cache
def getters(cls: type) -> list[tuple[str, str, str]]:
    names = {name for name, value in vars(cls).items() if inspect.isfunction(value) and name != "Init"}
    first = [name for name in names if not name.endswith(("Length", "AsNumpy", "IsNone"))]
    return [
        tuple(n if n in names else "" for n in (name, f"{name}Length", f"{name}AsNumpy")) for name in first
    ]  # type: ignore[misc]


def value_of(value: Any) -> Any:
    return walked(value) if hasattr(value, "_tab") else value


def member(owner: Any, name: str, table: Any) -> Any:
    """The table of a union; those besides options are left alone."""
    if name not in UNIONS:
        return table
    tag = getattr(owner, f"{name}Type")()
    made = getattr(tflite, next(known for known, value in vars(UNIONS[name]).items() if value == tag))()
    made.Init(table.Bytes, table.Pos)
    return walked(made)


def line(size: int, seconds: Any) -> str:
    ours, theirs, written, packed = seconds * 1e3
    return f"{size / 1e6:7.2f} {ours:12.1f} {theirs:9.1f} {written:12.1f} {packed:9.1f} "


if __name__ == "__main__":
    main()
