#!/usr/bin/env python3
"""The second table of docs/performance.md: ordinary networks, all parameters trained, against PyTorch at its best.

python tools/dev/breadth.py                        all networks, about ten minutes on a quiet machine
python tools/dev/breadth.py --networks unet,effb0  some; the results of the others stay where RESULTS has them
python tools/dev/breadth.py --threads 1            on a busy machine: processor time of one thread is what can be compared there
python tools/dev/breadth.py --no-run               only the page, from the results there are

Networks, weights, data and the driver, which lets the peers take turns, are those of ../shared/bench/breadth; `bench.py
--breadth` runs this after the workloads. A ratio is only given where both trained the same: the first loss agrees to 1e-4,
the tenth to 1 %. Where a step magnifies rounding (a high rate, statistics of eight samples), PyTorch's own ways of it part
by more than that; then referees.py computes ten losses in float64 and in float32 in three other ways, and each of ours may be
twice as far from float64's as the farthest of PyTorch's.
BENCH_TORCH and BENCH_CIRCLE name the interpreters (this one where they do not).
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "performance.md"
SOURCE = ROOT.parent / "shared" / "bench" / "breadth"
FOLDER = ROOT / "build" / "breadth"
RESULTS = ROOT / "build" / "breadth.jsonl"
REFEREES = ROOT / "build" / "referees.json"
BEGIN, END = "<!-- networks: written by tools/dev/breadth.py -->", "<!-- end of the networks -->"
FIRST, TENTH = 1e-4, 1e-2
LEAST_ROUNDS = 4
"""Each is at least three steps: ten losses want so many."""


@dataclass(frozen=True)
class Network:
    """One of the survey, and the bars: time and memory as fractions of PyTorch's."""

    name: str
    meaning: str
    time: float
    memory: float | None = None


NETWORKS = (
    Network("unet", "U-Net 128², batch 4", 0.7, 0.5),
    Network("lstm2", "LSTM 2×128, seq 64, batch 16", 0.6, 0.5),
    Network("bilstm", "LSTM 128 both ways, batch 16", 0.6, 0.5),
    Network("gru2", "GRU 2×128, batch 16", 0.25, 0.5),
    Network("aspp", "DeepLab ASPP 256², batch 4", 0.65, 0.5),
    Network("resnext", "ResNeXt-like 128², batch 8", 0.65, 0.55),
    Network("shuffle", "ShuffleNet g4 224², batch 8", 0.6, 0.55),
    Network("effb0", "EfficientNet-B0 224², batch 8", 0.65, 0.55),
    Network("efflite0", "EfficientNet-Lite0 224², batch 8", 0.65, 0.55),
    Network("mbv1", "MobileNetV1 224², batch 8", 0.6, 0.55),
    Network("mbv3s", "MobileNetV3-small 224², batch 8", 0.55, 0.55),
    Network("det", "detection head, two outputs, batch 4", 0.6, 0.5),
    Network("r18bn", "ResNet-18 224², batch 8", 0.6, 0.55),
    Network("dense", "DenseNet 128², batch 8", 0.6, 0.55),
    Network("conv1d", "conv1d k9 s2, seq 1024, batch 32", 0.6),
    Network("tcn", "temporal convolutions, batch 32", 0.5),
    Network("gpt", "GPT 4×256 RMSNorm, seq 256, batch 4", 0.45, 0.6),
    Network("gptlong", "GPT 4×256 RMSNorm, seq 1024, batch 1", 0.45, 0.4),
    Network("gptln", "GPT 4×256 LayerNorm, seq 256, batch 4", 0.45, 0.6),
    Network("vit", "ViT-tiny 224², batch 8", 0.42, 0.7),
    Network("recsgd", "recommender 100k×64, SGD", 0.1),
    Network("rec", "recommender 100k×64, Adam", 0.4),
    Network("ae", "autoencoder, batch 64", 0.4),
    Network("kws", "keywords, batch 16", 0.35),
    Network("tinymlp", "tiny MLP, batch 1", 0.1),
    Network("tinycnn", "tiny CNN, batch 1", 0.15),
)


@dataclass(frozen=True)
class Peer:
    """What the driver measured of one: least milliseconds of a step, growth in MB, losses from the first step on."""

    wall: float
    cpu: float
    growth: float
    losses: tuple[float, ...]

    @classmethod
    def of(cls, found: dict[str, Any]) -> Peer:
        return cls(found["wmin"], found["cmin"], found["hwm"], (found["loss"], *found["l"][1:]))


def interpreter(peer: str) -> str:
    return os.environ.get(f"BENCH_{peer.upper()}") or sys.executable


def prepare(names: list[str]) -> None:
    """A copy of the survey that keeps ten losses, and the models that are not there yet."""
    if not SOURCE.exists():
        sys.exit(f"{SOURCE} is not there: the networks and their driver are defined beside the repository")
    FOLDER.mkdir(parents=True, exist_ok=True)
    for script in SOURCE.iterdir():
        if script.is_file():
            shutil.copyfile(script, FOLDER / script.name)
    peer = FOLDER / "peer.py"
    peer.write_text(peer.read_text(encoding="utf-8").replace("L[:6]", "L[:10]"), encoding="utf-8")
    for folder in ("models", "logs"):
        (FOLDER / folder).mkdir(exist_ok=True)
    missing = [name for name in names if not (FOLDER / "models" / f"{name}.onnx").exists()]
    if missing:
        subprocess.run([interpreter("torch"), "export.py", *missing], check=True, cwd=FOLDER)


def measure(names: list[str], options: argparse.Namespace) -> None:
    """Let the peers take turns; what was measured is added to the results."""
    prepare(names)
    path = os.pathsep.join([str(ROOT), *os.environ.get("PYTHONPATH", "").split(os.pathsep)]).rstrip(
        os.pathsep
    )
    found = {f"BENCH_{peer.upper()}": interpreter(peer) for peer in ("torch", "circle")}
    peers = f"circle/{options.threads},torch/{options.threads}/cl"
    for name in names:
        command = [sys.executable, "drive.py", str(options.results.resolve()), str(options.rounds)]
        command += [str(options.seconds), f"{name}:{peers}"]
        subprocess.run(command, check=True, cwd=FOLDER, env={**os.environ, **found, "PYTHONPATH": path})
        # Now: the referees, who come after all networks, load the machine themselves.
        with options.results.open("a") as file:
            file.write(json.dumps({"name": name, "load": round(os.getloadavg()[0], 1)}) + "\n")


def lines_of(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def results(path: Path, threads: int) -> dict[str, tuple[Peer | None, Peer | None]]:
    """By network what was measured last of us and of PyTorch; None where it failed."""
    found = {}
    for line in lines_of(path):
        pair = [line.get(label, ...) for label in (f"circle/{threads}", f"torch/{threads}/cl")]
        if ... not in pair:
            ours, theirs = (None if each is None else Peer.of(each) for each in pair)
            found[line["name"]] = ours, theirs
    return found


def same_losses(ours: Peer, theirs: Peer, others: list[list[float]] | None = None) -> bool:
    """Whether both trained the same, as far as both tell; `others` are PyTorch's in float64, then in other ways."""
    pairs = list(zip(ours.losses, theirs.losses, strict=False))
    if not _near(*pairs[0], FIRST):
        return False
    if len(pairs) < 10 or _near(*pairs[9], TENTH):
        return True
    if others is None:
        return False
    exact, *rounded = others
    for step, (mine, its) in enumerate(pairs[: len(exact)]):
        spread = max(abs(way[step] - exact[step]) for way in [*rounded, [its] * len(exact)])
        if abs(mine - exact[step]) > max(2 * spread, TENTH * abs(exact[step])):
            return False
    return True


def _near(mine: float, its: float, share: float) -> bool:
    return abs(mine - its) <= share * max(abs(its), 1e-3)


def judge(names: Iterable[str], options: argparse.Namespace) -> None:
    """PyTorch's own ways of computing the networks whose losses part, once."""
    known = referees()
    for name, (ours, theirs) in results(options.results, options.threads).items():
        if name not in names or name in known or not ours or not theirs or same_losses(ours, theirs):
            continue
        script = str(Path(__file__).parent / "comparing" / "referees.py")
        environment = {**os.environ, "PYTHONPATH": str(FOLDER)}
        made = subprocess.run(
            [interpreter("torch"), script, name], check=True, cwd=FOLDER, env=environment, capture_output=True
        )
        known[name] = json.loads(made.stdout.splitlines()[-1])
        REFEREES.write_text(json.dumps(known))


def referees() -> dict[str, list[list[float]]]:
    return json.loads(REFEREES.read_text()) if REFEREES.exists() else {}


def table(found: dict[str, tuple[Peer | None, Peer | None]]) -> Iterator[str]:
    """One row a network; bold where the bar is held."""
    import limits  # which knows the networks from here

    least, known = limits.floors(), referees()
    yield "| network | ms a step | ÷ PyTorch's | bar | limit | processor time ÷ its | growth, MB | ÷ PyTorch's | bar |"
    yield "|---|---|---|---|---|---|---|---|---|"
    for network in NETWORKS:
        if network.name not in found:
            continue
        ours, theirs = found[network.name]
        if ours is None or theirs is None or not same_losses(ours, theirs, known.get(network.name)):
            why = (
                "we fail"
                if ours is None
                else "PyTorch fails"
                if theirs is None
                else "the losses are not the same"
            )
            yield f"| {network.meaning} | {why} |  |  |  |  |  |  |  |"
            continue
        cells = [network.meaning, f"{ours.wall:.1f}", passed(ours.wall / theirs.wall, network.time)]
        limit = f"{least[network.name] / theirs.wall:.2f}" if network.name in least else ""
        cells += [f"{network.time:g}", limit, f"{ours.cpu / theirs.cpu:.2f}", f"{ours.growth:.1f}"]
        cells += [
            passed(ours.growth / theirs.growth, network.memory),
            "" if network.memory is None else f"{network.memory:g}",
        ]
        yield "| " + " | ".join(cells) + " |"


def passed(ratio: float, bar: float | None) -> str:
    return f"**{ratio:.2f}**" if bar is not None and ratio <= bar else f"{ratio:.2f}"


def section(found: dict[str, tuple[Peer | None, Peer | None]], options: argparse.Namespace) -> str:
    """What stands between the page's two marks."""
    loads = {line["name"]: line["load"] for line in lines_of(options.results) if "load" in line}
    seen = [loads[name] for name in found if name in loads]
    load = f"load average {min(seen)} to {max(seen)}" if seen else "load average not recorded"
    head = (
        f"{options.threads} thread{'s' if options.threads > 1 else ''}; {time.strftime('%Y-%m-%d')}; "
        f"{load} on {os.cpu_count()} cores. "
        "Bold: the bar, which is for a quiet machine and two threads, is held."
    )
    return "\n".join([BEGIN, head, "", *table(found), END])


def parse(arguments: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--networks", default=",".join(network.name for network in NETWORKS))
    parser.add_argument("--rounds", type=int, default=LEAST_ROUNDS, help=f"at least {LEAST_ROUNDS}")
    parser.add_argument("--seconds", type=float, default=2.0, help="of each round of each peer")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--results", type=Path, default=RESULTS)
    parser.add_argument("--no-run", action="store_true", help="write the page from the results file alone")
    return parser.parse_args(arguments)


def main(arguments: list[str] | None = None) -> int:
    options = parse(arguments)
    names = options.networks.split(",")
    if unknown := {*names} - {network.name for network in NETWORKS}:
        sys.exit(f"--networks: {', '.join(sorted(unknown))} is none of the survey's")
    options.results.parent.mkdir(parents=True, exist_ok=True)
    if not options.no_run:
        measure(names, options)
    judge(names, options)
    found = results(options.results, options.threads)
    if not found:
        sys.exit(f"{options.results} holds no results for {options.threads} threads; run without --no-run")
    page = PAGE.read_text(encoding="utf-8")
    before, after = page.split(BEGIN)[0], page.split(END)[1]
    PAGE.write_text(before + section(found, options) + after, encoding="utf-8")
    print("\n".join(table(found)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
