"""A run of many rounds: where it stands, its best weights, and the file that a killed server goes on from."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from circle_train.checkpoints import safetensors
from circle_train.errors import CheckpointError, ConfigError, refusing
from circle_train.federated.server.replies import Refused
from circle_train.fitting.watcher import Watcher
from circle_train.format.atomic import atomic_write
from circle_train.ir.mapped import open_bytes
from circle_train.ir.tensor_type import Array

FORMAT = "circle_train.federated/1"
MONITOR = "loss"
"""What is watched unless somebody says otherwise."""
GLOBAL, BEST, STRATEGY = "global/", "best/", "strategy/"


@dataclass
class Round:
    """What a round cost and gave."""

    number: int
    clients: int = 0
    bytes_down: int = 0
    bytes_up: int = 0
    seconds: float = 0.0
    training: dict[str, float] = field(default_factory=dict)
    """Means over the clients that trained."""
    clients_evaluated: int = 0
    evaluation: dict[str, float] = field(default_factory=dict)
    """Means over the clients that evaluated."""
    server: dict[str, float] = field(default_factory=dict)


@dataclass
class Run:
    """All rounds so far."""

    arrays: dict[str, Array]
    monitor: str = MONITOR
    rounds: list[Round] = field(default_factory=list)
    refused: list[Refused] = field(default_factory=list)
    scores: dict[int, float] = field(default_factory=dict)
    """By client, of the last round in which clients evaluated."""
    best: dict[str, Array] = field(default_factory=dict)
    best_round: int = 0
    best_value: float | None = None
    strategy: tuple[dict[str, Any], dict[str, Array]] = field(default_factory=lambda: ({}, {}))
    finished: bool = False
    """Whether all rounds that were asked for are over, and their files written."""

    @property
    def done(self) -> int:
        return len(self.rounds)

    @property
    def history(self) -> dict[str, list[float]]:
        """Series by name: the server's own metrics, those of clients as `clients_…`, of their training as `training_…`."""
        series: dict[str, list[float]] = {}
        for one in self.rounds:
            groups = (("", one.server), ("clients_", one.evaluation), ("training_", one.training))
            for prefix, metrics in groups:
                for name, value in metrics.items():
                    series.setdefault(f"{prefix}{name}", [float("nan")] * (one.number - 1)).append(value)
        return series

    def end(self, one: Round, arrays: Mapping[str, Array]) -> None:
        """A round is over; its weights are the best so far where the watched metric says so, or nobody measures."""
        self.rounds.append(one)
        self.arrays = dict(arrays)
        measured = next((m for m in (one.server, one.evaluation, one.training) if self.monitor in m), None)
        known = [*one.server, *one.evaluation, *one.training]
        if measured is None and known and one.number == 1 and self.monitor != MONITOR:
            raise ConfigError(
                f"monitor '{self.monitor}' was not measured, expected one of {', '.join(dict.fromkeys(known))}"
            )
        watcher = Watcher(monitor=self.monitor)
        watcher.best = self.best_value
        if measured is None or watcher.improves(measured[self.monitor]):
            self.best, self.best_round = self.arrays, one.number
            self.best_value = watcher.best

    def save(self, path: Path) -> None:
        """The whole file, or the one before it."""
        tree, arrays = self.strategy
        named = {f"{GLOBAL}{n}": a for n, a in self.arrays.items()}
        named |= {f"{BEST}{n}": a for n, a in self.best.items()}
        named |= {f"{STRATEGY}{n}": a for n, a in arrays.items()}
        told = {
            "format": FORMAT,
            "monitor": self.monitor,
            "rounds": json.dumps([asdict(one) for one in self.rounds]),
            "refused": json.dumps([asdict(one) for one in self.refused]),
            "scores": json.dumps(list(self.scores.items())),
            "best": json.dumps([self.best_round, self.best_value]),
            "strategy": json.dumps(tree),
            "finished": json.dumps(self.finished),
        }
        with atomic_write(path) as file:
            file.write(safetensors.encode(named, told))


def resumed(path: Path, fresh: Run) -> Run:
    """The run that the file holds, where it is one of the same arrays."""
    where = str(path)
    try:
        data = bytes(open_bytes(path))
    except OSError as error:
        raise CheckpointError(
            f"run {where}: cannot be read ({error.strerror}); remove it to begin anew"
        ) from None
    with refusing(CheckpointError, f"run {where}", "remove it to begin anew"):
        named, told = safetensors.decode(data, where)
        if told.get("format") != FORMAT:
            raise CheckpointError(f"run {where}: its format is {told.get('format')!r}, expected '{FORMAT}'")
        parts = {prefix: _part(named, prefix) for prefix in (GLOBAL, BEST, STRATEGY)}
        here = _kinds(fresh.arrays)
        if _kinds(parts[GLOBAL]) != here or (parts[BEST] and _kinds(parts[BEST]) != here):
            raise CheckpointError(
                f"run {where} is of another model: it holds {len(parts[GLOBAL])} arrays of other names or shapes than these "
                f"{len(here)}; choose another run_dir"
            )
        best_round, best_value = json.loads(told["best"])
        return Run(
            parts[GLOBAL],
            fresh.monitor,
            _rounds(json.loads(told["rounds"])),
            [Refused(int(r["round"]), int(r["client"]), str(r["why"])) for r in json.loads(told["refused"])],
            {int(client): float(score) for client, score in json.loads(told["scores"])},
            parts[BEST],
            int(best_round),
            None if best_value is None else float(best_value),
            (json.loads(told["strategy"]), parts[STRATEGY]),
            json.loads(told["finished"]) is True,
        )


def _rounds(told: list[dict[str, Any]]) -> list[Round]:
    """As they were written: numbers that a page can add up and draw, one round after the other."""
    found = [Round(**one) for one in told]
    for number, one in enumerate(found, 1):
        counts = (one.clients, one.bytes_down, one.bytes_up, one.clients_evaluated)
        measured = (one.seconds, *one.training.values(), *one.evaluation.values(), *one.server.values())
        if one.number != number or any(type(n) is not int or not 0 <= n < 1 << 63 for n in counts):
            raise ValueError(f"round {number} counts what cannot be counted")
        if any(type(value) is not float for value in measured):
            raise ValueError(f"round {number} has no numbers")
    return found


def _kinds(arrays: Mapping[str, Array]) -> dict[str, tuple[Any, ...]]:
    return {name: (array.shape, array.dtype) for name, array in arrays.items()}


def _part(named: Mapping[str, Array], prefix: str) -> dict[str, Array]:
    return {name.removeprefix(prefix): np.array(a) for name, a in named.items() if name.startswith(prefix)}
