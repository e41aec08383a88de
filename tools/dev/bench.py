#!/usr/bin/env python3
"""Measures circle_train against its peers and writes the tables of docs/performance.md.

python tools/dev/bench.py                          all workloads, about half an hour on a quiet machine
python tools/dev/bench.py --workloads w1b10,w2     some; the results of the others stay where RESULTS has them
python tools/dev/bench.py --workloads r18   a network of ours (tools/dev/comparing/workloads.py), not one of ../shared/bench
python tools/dev/bench.py --breadth                 the table of ordinary networks too (tools/dev/breadth.py, by itself)
python tools/dev/bench.py --no-run                 only the page, from the results there are
python tools/dev/bench.py --runner tools/dev/run_circle.py     our column by another runner than that of ../shared/bench

A row is only given where all trained the same: where our losses are those of the peers. The measuring is done by
the comparison of ../shared/bench (its README says how peers are installed), which keeps all peers alive and lets
them take turns; BENCH_ENVS, BENCH_MODELS and BENCH_PYTHON_CIRCLE are handed on to it.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "performance.md"
OWN_WORKLOADS = Path(__file__).parent / "comparing" / "workloads.py"
BREADTH = Path(__file__).with_name("breadth.py")
COMPARE = ROOT.parent / "shared" / "bench" / "compare.py"
OURS = "circle"
PEERS = ("ort", "torch:cl+keepheap", "tf", "tf:xla")
BEGIN, END = "<!-- measured: written by tools/dev/bench.py -->", "<!-- end of what is measured -->"


@dataclass(frozen=True)
class Workload:
    """What is trained, and the bars that the project set itself: time ratio, growth in MB, cold start in ms."""

    name: str
    meaning: str
    time: float
    growth: float | None = None
    cold: float | None = None
    steps: int = 0
    """In a round; 0: as many as the comparison takes for it."""


WORKLOADS = (
    Workload("w1b10", "784-128-10, batch 10", 0.6, 3, 110),
    Workload("w1b32", "784-128-10, batch 32", 0.65, 4, 110),
    Workload("w2", "small CNN, batch 32", 0.8, 20, 160),
    Workload("w3", "MobileNetV2 224, batch 10, all", 0.65, 400, 700),
    Workload("w3t", "MobileNetV2 160, batch 32, last 5 operators", 0.8, 60, 500),
    Workload("w5", "BERT-mini, batch 8, all", 0.9, 280, 450),
    Workload("r18", "ResNet-18 224, batch 8, all", 1.0, steps=3),
)


@dataclass(frozen=True)
class Peer:
    """One library's results on one workload, over all repeats."""

    label: str
    least: float
    median: float
    rounds: tuple[tuple[float, ...], ...]
    """Medians by repeat and round."""
    cold: float
    growth: float
    losses: tuple[float, ...]
    """At the first and at the tenth step."""
    version: str


def measure(names: list[str], options: argparse.Namespace) -> None:
    """Run the comparison; what it measured is added to the results file."""
    if not COMPARE.exists():
        sys.exit(f"{COMPARE} is not there: the benchmark's peers are defined beside the repository")
    steps = {workload.name: workload.steps for workload in WORKLOADS}
    with tempfile.TemporaryDirectory() as folder:
        scripts = laid_over(Path(folder) / "bench", options.runner)
        for name in names:
            build_missing(scripts, name)
            command = [sys.executable, str(scripts / COMPARE.name), "--workload", name, "--baseline", OURS]
            command += ["--peers", f"{OURS},{options.peers}", "--rounds", str(options.rounds)]
            command += ["--repeat", str(options.repeat), "--threads", str(options.threads)]
            command += ["--steps", str(steps[name])]
            subprocess.run([*command, "--out", str(options.results.resolve())], check=True, env=environment())


def laid_over(folder: Path, runner: Path | None) -> Path:
    """A copy of the comparison's scripts with our networks, and our runner when one is given."""
    scripts = Path(shutil.copytree(COMPARE.parent, folder))
    if runner:
        shutil.copy(runner, scripts / f"run_{OURS}.py")
    shutil.copy(OWN_WORKLOADS, scripts)
    nets = scripts / "nets.py"
    more = f"\n\nimport sys\n\nimport {OWN_WORKLOADS.stem}\n\n{OWN_WORKLOADS.stem}.add_to(sys.modules[__name__])\n"
    before, main, after = nets.read_text(encoding="utf-8").rpartition('\nif __name__ == "__main__":')
    nets.unlink()
    nets.write_text(before + more + main + after, encoding="utf-8")
    return scripts


def models_folder() -> Path:
    """Where the comparison of ../shared/bench has its models."""
    return Path(os.environ.get("BENCH_MODELS") or Path(tempfile.gettempdir(), "circle_train_peers", "models"))


def build_missing(scripts: Path, name: str) -> None:
    """Weights, data and models of a workload, each stage in the peer's environment that can make it."""
    if not any(models_folder().glob(f"{name}.*")):
        subprocess.run([sys.executable, str(scripts / "build_models.py"), "--workloads", name], check=True)


def environment() -> dict[str, str]:
    """Our own column runs this checkout."""
    path = os.pathsep.join([str(ROOT), *os.environ.get("PYTHONPATH", "").split(os.pathsep)]).rstrip(
        os.pathsep
    )
    return {**os.environ, "PYTHONPATH": path}


def results(path: Path, repeat: int) -> dict[str, list[Peer]]:
    """Per workload the peers of its newest runs."""
    lines = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
    found = {}
    for workload in WORKLOADS:
        runs = [line["peers"] for line in lines if line["workload"] == workload.name]
        if runs:
            found[workload.name] = list(peers(runs[-repeat:]))
    return found


def peers(runs: list[dict[str, Any]]) -> Iterator[Peer]:
    """Repeats of one workload, by peer; one that failed throughout is left out."""
    for label in dict.fromkeys(label for run in runs for label in run):
        ok = [run[label] for run in runs if "error" not in run.get(label, {"error": ""})]
        if not ok:
            continue
        yield Peer(
            label,
            min(one["ms_per_step_min"] for one in ok),
            statistics.median(r["median"] for one in ok for r in one["rounds"]),
            tuple(tuple(r["median"] for r in run.get(label, {}).get("rounds", ())) for run in runs),
            min(one["import_ms"] + one["prepare_ms"] + one["first_step_ms"] for one in ok),
            statistics.median(one["rss_growth_mb"] for one in ok),
            tuple(ok[0][key] for key in ("loss_1", "loss_10") if ok[0][key] is not None),
            ok[0]["version"],
        )


def ratio_of_medians(ours: Peer, other: Peer) -> float:
    """Median over the rounds of our median against the other's in the same round."""
    pairs = [
        a / b
        for mine, theirs in zip(ours.rounds, other.rounds, strict=True)
        for a, b in zip(mine, theirs, strict=False)
    ]
    return statistics.median(pairs)


def summary(found: dict[str, list[Peer]]) -> Iterator[str]:
    """One row a workload: we against the fastest peer, with the bar that was set."""
    yield "| workload | fastest peer | least time ÷ its | medians | bar | growth, MB | bar | cold start, ms | bar |"
    yield "|---|---|---|---|---|---|---|---|---|"
    for workload in WORKLOADS:
        ours, others = split(found.get(workload.name, []))
        if ours is None or not others:
            continue
        best = min(others, key=lambda peer: peer.least)
        if not same_losses(ours, best):
            cells = [
                f"{workload.name}: {workload.meaning}",
                best.label,
                f"not comparable: our losses are {numbers(ours)}, ",
            ]
            cells[-1] += f"its {numbers(best)}"
            yield "| " + " | ".join([*cells, *[""] * 6]) + " |"
            continue
        ratio = ours.least / best.least
        cells = [f"{workload.name}: {workload.meaning}", best.label, passed(ratio, workload.time, "{:.2f}")]
        cells += [f"{ratio_of_medians(ours, best):.2f}", f"{workload.time}"]
        cells += [passed(ours.growth, workload.growth, "{:.1f}"), shown(workload.growth)]
        cells += [passed(ours.cold, workload.cold, "{:.0f}"), shown(workload.cold)]
        yield "| " + " | ".join(cells) + " |"


def by_peer(found: dict[str, list[Peer]], title: str, ratio: Callable[[Peer, Peer], str]) -> Iterator[str]:
    """A table with a column for each peer."""
    labels = list(dict.fromkeys(p.label for row in found.values() for p in row if p.label != OURS))
    yield "| " + " | ".join([title, *labels]) + " |"
    yield "|---" * (len(labels) + 1) + "|"
    for name, row in found.items():
        ours, others = split(row)
        if ours is not None:
            by_label = {peer.label: peer for peer in others}
            cells = [cell(ours, by_label.get(label), ratio) for label in labels]
            yield "| " + " | ".join([name, *cells]) + " |"


def cell(ours: Peer, other: Peer | None, ratio: Callable[[Peer, Peer], str]) -> str:
    if other is None:
        return "fails"
    return ratio(ours, other) if same_losses(ours, other) else "not comparable"


def same_losses(ours: Peer, other: Peer) -> bool:
    """Whether both trained the same: the first loss is equal, the tenth near (Adam's epsilons differ, see the README)."""
    return all(
        abs(mine - its) <= share * max(abs(its), 1e-3)
        for mine, its, share in zip(ours.losses, other.losses, (1e-3, 5e-2), strict=False)
    )


def numbers(peer: Peer) -> str:
    return ", ".join(f"{loss:.4g}" for loss in peer.losses)


def split(row: list[Peer]) -> tuple[Peer | None, list[Peer]]:
    ours = next((peer for peer in row if peer.label == OURS), None)
    return ours, [peer for peer in row if peer.label != OURS]


def passed(value: float, bar: float | None, form: str) -> str:
    """Bold where the bar is held."""
    text = form.format(value)
    return f"**{text}**" if bar is not None and value <= bar else text


def shown(bar: float | None) -> str:
    return "" if bar is None else f"{bar:g}"


def section(found: dict[str, list[Peer]], options: argparse.Namespace) -> str:
    """What stands between the page's two marks."""
    versions = {peer.label.split(":")[0]: peer.version for row in found.values() for peer in row}
    lines = [
        BEGIN,
        f"{machine()}; {options.threads} threads; {time.strftime('%Y-%m-%d')}; load average at the end "
        f"{os.getloadavg()[0]:.1f}; "
        + ", ".join(f"{name} {version}" for name, version in versions.items())
        + ".",
        f"Our column was run by `{options.runner or '../shared/bench/run_circle.py'}`.",
        "",
        *summary(found),
        "",
        "Bold: the bar is held. Our time as a fraction of each peer's, least of all steps and (median of rounds):",
        "",
        *by_peer(found, "time", lambda o, p: f"{o.least / p.least:.2f} ({ratio_of_medians(o, p):.2f})"),
        "",
        "Memory growth of each peer as a multiple of ours:",
        "",
        *by_peer(found, "growth", lambda o, p: f"{p.growth / max(o.growth, 0.1):.1f}"),
        "",
        "Cold start to the first trained step of each peer as a multiple of ours:",
        "",
        *by_peer(found, "cold start", lambda o, p: f"{p.cold / o.cold:.1f}"),
        END,
    ]
    return "\n".join(lines)


def machine() -> str:
    """Processor and kernel, as the page names them."""
    info = Path("/proc/cpuinfo")
    model = re.search(r"model name\s*: (.+)", info.read_text()) if info.exists() else None
    return f"{model[1] if model else platform.processor()}, {os.cpu_count()} cores, {platform.system()}"


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--workloads", default=",".join(w.name for w in WORKLOADS))
    parser.add_argument("--peers", default=",".join(PEERS))
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--repeat", type=int, default=2, help="fresh processes this many times")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--results", type=Path, default=ROOT / "build" / "bench.jsonl")
    parser.add_argument("--runner", type=Path, help="our runner instead of the one in ../shared/bench")
    parser.add_argument("--breadth", action="store_true", help="then measure the ordinary networks too")
    parser.add_argument("--no-run", action="store_true", help="write the page from the results file alone")
    return parser.parse_args()


def main() -> int:
    options = parse()
    options.results.parent.mkdir(parents=True, exist_ok=True)
    if not options.no_run:
        measure(options.workloads.split(","), options)
    found = results(options.results, options.repeat)
    if not found:
        sys.exit(f"{options.results} holds no results; run without --no-run")
    page = PAGE.read_text(encoding="utf-8")
    before, after = page.split(BEGIN)[0], page.split(END)[1]
    PAGE.write_text(before + section(found, options) + after, encoding="utf-8")
    print("\n".join(summary(found)))
    if options.breadth:
        only_page = ["--no-run"] if options.no_run else []
        command = [sys.executable, str(BREADTH), "--threads", str(options.threads), *only_page]
        return subprocess.run(command, check=False).returncode
    return 0


if __name__ == "__main__":
    sys.exit(main())
