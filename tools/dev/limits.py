#!/usr/bin/env python3
"""What each network of breadth.py spends its step on, by class of node, and how much of that the machine's limit explains.

python tools/dev/limits.py                       all networks, three minutes on a quiet machine
python tools/dev/limits.py --networks unet,effb0 some; those of the others stay where RESULTS has them
python tools/dev/limits.py --no-run              only the page, from the results there are

The machine's limits are measured in the same run by machine.c (it wants a C compiler). A node takes at least the time of
its arithmetic at the peak, or that of its bytes at the bandwidth of memory; where all of them together are smaller than the
last cache, at that of the cache. Of a table count the rows that it must read or move; a 3×3 convolution with stride 1 takes a
quarter of its arithmetic at least, as Winograd's products do. The sum over the nodes is the least that the step takes as long
as no further nodes are joined. breadth.py divides it by PyTorch's time: a bar below that asks for more than faster kernels.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from breadth import FOLDER, NETWORKS, PAGE, ROOT, interpreter, prepare

RESULTS = ROOT / "build" / "limits.json"
BEGIN, END = "<!-- limits: written by tools/dev/limits.py -->", "<!-- end of the limits -->"
PROGRAM = Path(__file__).with_name("machine.c")

COPIES = "CONCATENATION|STRIDED_SLICE|TRANSPOSE|PAD|PADV2|SLICE|SPLIT|BROADCAST_TO|ZEROS"
CLASSES = (
    ("convolutions", "GFLOP/s", r"(PADDED_)?CONV_2D|TRANSPOSE_CONV"),
    ("input gradients", "GFLOP/s", r"d (PADDED_)?CONV_2D\.x|d TRANSPOSE_CONV\.x"),
    ("weight gradients", "GFLOP/s", r"d (PADDED_)?CONV_2D\.[wb]|d TRANSPOSE_CONV\.[wb]"),
    ("depthwise, all three", "GB/s", r"(d )?(PADDED_)?DEPTHWISE_CONV_2D.*"),
    ("dense, all three", "GFLOP/s", r"(d )?FULLY_CONNECTED.*"),
    ("products of attention", "GFLOP/s", r"(d )?BATCH_MATMUL.*"),
    ("recurrent sweeps", "GFLOP/s", r"(d )?SEQUENCE_.*"),
    ("normalisation", "GB/s", r"(d )?(BATCH_STATISTICS|NORMALISE_BY_BATCH|LAYER_NORM|RMS_NORM).*|MOVE_TOWARDS"),
    ("tables and updates", "GB/s", r"(d )?GATHER.*|UPDATE.*"),
    ("copies and pools", "GB/s", rf"(d )?({COPIES})\b.*|MAX_POOL_.*|(d )?(RESIZE|AVERAGE_POOL)_.*"),
    ("elementwise, softmax, loss", "GB/s", r".*"),
)  # fmt: skip
"""Name, what its rate is counted in, and its nodes; what is joined is of the first class that one of its members is of."""


@dataclass(frozen=True)
class Limits:
    """GFLOP/s, GB/s from memory and within the last cache, nanoseconds to the other core and back."""

    gflops: float
    memory: float
    cache: float
    round_trip: float

    def seconds(self, flops: float, nbytes: float) -> float:
        """What arithmetic or traffic take at least."""
        bandwidth = self.cache if nbytes <= last_cache() else self.memory
        return max(flops / self.gflops, nbytes / bandwidth) * 1e-9


def last_cache() -> int:
    """Bytes of the largest cache."""
    sizes = Path("/sys/devices/system/cpu/cpu0/cache").glob("index*/size")
    return max((int(path.read_text().strip().rstrip("K")) << 10 for path in sizes), default=32 << 20)


def machine(threads: int) -> Limits:
    """Measure now."""
    compiler = shutil.which("cc") or shutil.which("gcc") or sys.exit("limits.py wants a C compiler")
    program = ROOT / "build" / "machine"
    subprocess.run(
        [compiler, "-O3", "-march=native", "-pthread", str(PROGRAM), "-o", str(program)], check=True
    )
    found = subprocess.run([str(program), str(threads)], check=True, capture_output=True, text=True).stdout
    return Limits(**json.loads(found))


# ---------------------------------------------------------------------------------- within the process of one network


def profile(name: str, threads: int, steps: int) -> list[dict[str, Any]]:
    """The nodes of a network's step: what they are, their seconds, arithmetic, bytes, and the least arithmetic."""
    sessions = [opened(name, count) for count in sorted({threads, 1}, reverse=True)]
    seconds = [float("inf")] * len(sessions)
    for _ in range(max(steps, 6)):
        for place, (session, x, y) in enumerate(sessions):
            begun = time.perf_counter()
            session.train_step(x, y)
            seconds[place] = min(seconds[place], time.perf_counter() - begun)
    session, x, y = sessions[0]
    measured = session.profile(x, y, steps=steps)
    nodes = [node for node, _ in session.programs.whole.bound]
    rows = [_row(node, found) for node, found in zip(nodes, measured.nodes, strict=True)]
    return [*rows, {"step": seconds[0], "alone": seconds[-1]}]


def opened(name: str, threads: int) -> tuple[Any, Any, Any]:
    """A session of the network, and its batch."""
    import csess  # the survey's, in FOLDER

    import circle_train as ct

    losses, optimizer = csess.table()[name]
    xs, ys = csess.load(name)
    model = ct.load(f"models/{name}.onnx")
    config = csess.config(ct, name, losses, optimizer, xs[0].shape[0], trainable="all", batch_norm="train")
    x, y = csess.fit_layout(xs, model.inputs)[0], ys if len(ys) > 1 else ys[0]
    return ct.TrainSession(model, config, threads=threads), x, y


def _row(node: Any, found: Any) -> dict[str, Any]:
    members = node.originals or (node,)
    kinds = [_kind(member.op) for member in members]
    numpy = found.engine not in ("native", "view")
    return {
        "class": "numpy" if numpy else class_of(kinds),
        "seconds": found.seconds,
        "flops": found.flops,
        "least": found.flops * (0.25 if any(map(_winograds, members)) else 1.0),
        "nbytes": _nbytes(node) if node.op.view_input is None else 0,
    }


def _kind(op: Any) -> str:
    """CONV_2D, and `d CONV_2D.w` for its gradient."""
    of = getattr(op, "of", None)
    if of is None:
        return str(op.name)
    return f"d {of.name}.{of.input_name(op.wrt) if isinstance(op.wrt, int) else ''}"


def class_of(kinds: Iterable[str]) -> str:
    kinds = [*kinds]
    return next(name for name, _, what in CLASSES if any(re.fullmatch(what, kind) for kind in kinds))


def _winograds(node: Any) -> bool:
    """Whether it is a 3×3 convolution with stride 1, or its input gradient."""
    op = getattr(node.op, "of", node.op)
    if not re.fullmatch(r"(PADDED_)?CONV_2D", op.name) or getattr(node.op, "wrt", 0) not in (0, (0,)):
        return False
    window = any(t is not None and len(t.shape) == 4 and t.shape[1:3] == (3, 3) for t in node.inputs)
    return window and (op.stride_h, op.stride_w, op.dilation_h_factor, op.dilation_w_factor) == (1, 1, 1, 1)


def _nbytes(node: Any) -> int:
    """Every input and output once; of a table the rows that are read, or moved where the rule moves no others."""
    members = [*node.originals] or [node]
    reads = members[0].op.name.startswith("GATHER")
    rules = [member.op.rule for member in members if member.op.name == "UPDATE"]
    moves = _kind(members[0].op).startswith("d GATHER") and rules and not rules[0].slots
    if not reads and not moves:
        return int(node.nbytes)
    others = sum(t.type.nbytes for t in (*node.inputs, *node.outputs) if t is not None)
    table = max(t.type.nbytes for t in node.inputs if t is not None)
    rows = (others - table) // (2 if reads else 1)
    return int(others - table + min(table, rows))


# ---------------------------------------------------------------------------------------------------------- the page


def summarised(rows: list[dict[str, Any]], limits: Limits) -> dict[str, Any]:
    """By class milliseconds, GFLOP, GB and the least milliseconds; and of the step."""
    classes: dict[str, dict[str, float]] = {}
    *nodes, last = rows
    for row in nodes:
        found = classes.setdefault(row["class"], {"ms": 0.0, "gflop": 0.0, "gb": 0.0, "least": 0.0})
        found["ms"] += 1e3 * row["seconds"]
        found["gflop"] += 1e-9 * row["flops"]
        found["gb"] += 1e-9 * row["nbytes"]
        found["least"] += 1e3 * min(limits.seconds(row["least"], row["nbytes"]), row["seconds"])
    least = sum(found["least"] for found in classes.values())
    return {"step": 1e3 * last["step"], "alone": 1e3 * last["alone"], "least": least, "classes": classes}


def run(names: list[str], options: argparse.Namespace) -> None:
    """Measure the machine and each network, in processes of their own; what was found is added to the results."""
    prepare(names)
    found = json.loads(options.results.read_text()) if options.results.exists() else {"networks": {}}
    path = os.pathsep.join([str(ROOT), str(FOLDER), str(ROOT / "tools" / "dev")])
    for name in names:
        limits = machine(options.threads)
        command = [interpreter("circle"), str(Path(__file__).resolve()), "--one", name]
        command += ["--threads", str(options.threads), "--steps", str(options.steps)]
        environment = {**os.environ, "PYTHONPATH": path}
        made = subprocess.run(
            command, check=True, cwd=FOLDER, env=environment, capture_output=True, text=True
        )
        rows = json.loads(made.stdout.splitlines()[-1])
        # A host moves cores between clocks and caches: the best of the machine is what counts.
        best = Limits(**found.get("machine", asdict(limits)))
        found["machine"] = {
            key: (min if key == "round_trip" else max)(value, getattr(best, key))
            for key, value in asdict(limits).items()
        }
        found["networks"][name] = {"rows": rows, "round_trip": limits.round_trip}
        found["threads"], found["date"] = options.threads, time.strftime("%Y-%m-%d")
        options.results.write_text(json.dumps(found))
        made_of = summarised(rows, Limits(**found["machine"]))
        print(f"{name}: {made_of['step']:.2f} ms, at least {made_of['least']:.2f}", flush=True)


def table(found: dict[str, Any]) -> Iterator[str]:
    """One row a network: the step, its floor, what threads gain, and of all larger classes `ms: rate (share of the limit)`."""
    limits = Limits(**found["machine"])
    names = [*(name for name, _, _ in CLASSES), "numpy"]
    units = {**{name: unit for name, unit, _ in CLASSES}, "numpy": ""}
    heads = [f"{name}, {units[name]}" if units[name] else name for name in names]
    yield "| network | step, ms | at least | one thread ÷ step | " + " | ".join(heads) + " |"
    yield "|---" * (4 + len(names)) + "|"
    for network in NETWORKS:
        if network.name not in found["networks"]:
            continue
        made = summarised(found["networks"][network.name]["rows"], limits)
        cells = [_cell(made["classes"].get(name), units[name], made["step"]) for name in names]
        cells = [f"{made['alone'] / made['step']:.2f}", *cells]
        yield f"| {network.name} | {made['step']:.3g} | {made['least']:.3g} | " + " | ".join(cells) + " |"


def _cell(found: dict[str, float] | None, unit: str, step: float) -> str:
    if found is None or found["ms"] < 0.02 * step:
        return ""
    rate = found["gflop" if unit == "GFLOP/s" else "gb"] / found["ms"] * 1e3
    share = found["least"] / found["ms"]
    return f"{found['ms']:.3g}: {rate:.0f} ({share:.0%})" if unit else f"{found['ms']:.3g}"


def section(found: dict[str, Any]) -> str:
    """What stands between the page's two marks."""
    limits = Limits(**found["machine"])
    head = (
        f"{found['threads']} threads; {found['date']}. The machine: {limits.gflops:.0f} GFLOP/s, {limits.memory:.0f} GB/s from "
        f"memory, {limits.cache:.0f} GB/s within the last cache of {last_cache() >> 20} MB; a cache line goes to the other "
        f"core and back in {limits.round_trip:.0f} ns at best."
    )
    return "\n".join([BEGIN, head, "", *table(found), END])


def floors(path: Path = RESULTS) -> dict[str, float]:
    """Of each network that was measured the milliseconds that its step takes at least."""
    if not path.exists():
        return {}
    found = json.loads(path.read_text())
    limits = Limits(**found["machine"])
    return {name: summarised(one["rows"], limits)["least"] for name, one in found["networks"].items()}


def parse(arguments: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--networks", default=",".join(network.name for network in NETWORKS))
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--steps", type=int, default=8)
    parser.add_argument("--results", type=Path, default=RESULTS)
    parser.add_argument("--no-run", action="store_true", help="write the page from the results file alone")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    return parser.parse_args(arguments)


def main(arguments: list[str] | None = None) -> int:
    options = parse(arguments)
    if options.one:
        print(json.dumps(profile(options.one, options.threads, options.steps)))
        return 0
    names = options.networks.split(",")
    if unknown := {*names} - {network.name for network in NETWORKS}:
        sys.exit(f"--networks: {', '.join(sorted(unknown))} is none of the survey's")
    options.results.parent.mkdir(parents=True, exist_ok=True)
    if not options.no_run:
        run(names, options)
    if not options.results.exists():
        sys.exit(f"{options.results} is not there; run without --no-run")
    found = json.loads(options.results.read_text())
    page = PAGE.read_text(encoding="utf-8")
    before, after = page.split(BEGIN)[0], page.split(END)[1]
    PAGE.write_text(before + section(found) + after, encoding="utf-8")
    print("\n".join(table(found)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
