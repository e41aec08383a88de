"""A Flower server for a model: any strategy, evaluation, the best round kept, resumed when killed, a file at the end."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from flwr.app import ConfigRecord, Context
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import Strategy

from circle_train.errors import ConfigError
from circle_train.federated.local_grid import LocalGrid
from circle_train.federated.records import names, put, record_of, values
from circle_train.federated.server.page import write_page
from circle_train.federated.server.run import MONITOR, Run, resumed
from circle_train.federated.server.watched import Watch, Watched, setting_of
from circle_train.format.atomic import make_folder, write_text
from circle_train.model import Model, Source
from circle_train.record import record
from circle_train.session import TrainSession
from circle_train.settings.config import TrainConfig

RUN_FILE, PAGE = "run.safetensors", "report.html"
MODELS = ("model.circle", "model.tflite", "model.onnx", "model.onnx.data")
WRITTEN = (RUN_FILE, PAGE, *MODELS, *(f"trial-{name}" for name in MODELS))
"""In a run's folder."""
Chooses = Callable[[Context], Strategy]


@record
class RunSettings:
    """How a run goes.

    Args:
        rounds: in all; a run that was killed makes those that are left, a finished one more, if more are asked for now.
        clients: how many nodes to wait for before the first round.
        evaluate: (x, y) of whatever `session.evaluate` takes: judged here after every round.
        monitor: the metric whose best round is kept: the server's, else the clients'.
        run_dir: the folder that a killed run is resumed from, with the model, and a report at the end.
        export: where the best round's model goes, .circle, .tflite or .onnx; in run_dir by default.
        seed: of whom a strategy samples.
        train_config: what each message says to clients that train, as "learning-rate" or "local-epochs".
        evaluate_config: what each message says to clients that evaluate.
        timeout: seconds to wait for the replies of a round.

    "num-server-rounds", "clients" and "run-dir" in the run's config come before these.
    """

    rounds: int = 3
    clients: int = 1
    evaluate: Any = None
    monitor: str = MONITOR
    run_dir: str | Path | None = None
    export: str | Path | None = None
    seed: int = 0
    train_config: Mapping[str, Any] | None = None
    evaluate_config: Mapping[str, Any] | None = None
    timeout: float = 3600.0

    def __post_init__(self) -> None:
        for name in ("rounds", "clients"):
            value = getattr(self, name)
            if not isinstance(value, int) or isinstance(value, bool) or value < 1:
                raise ConfigError(f"{name} is {value!r}, expected a whole number from 1")
        if not isinstance(self.timeout, (int, float)) or not self.timeout > 0:
            raise ConfigError(f"timeout is {self.timeout!r}, expected seconds")
        for name in ("train_config", "evaluate_config"):
            self.sent(name)

    def sent(self, name: str) -> ConfigRecord:
        """What messages say of these two."""
        try:
            return ConfigRecord(dict(getattr(self, name) or {}))
        except (TypeError, ValueError) as error:
            raise ConfigError(f"{name}: {str(error).rstrip('.')}") from None

    def told(self, config: Mapping[str, Any]) -> RunSettings:
        """The same but for what the run's config says."""
        keys = {"num-server-rounds": "rounds", "clients": "clients", "run-dir": "run_dir"}
        return replace(self, **{field: config[key] for key, field in keys.items() if key in config})


class Server:
    """A model, a strategy, and how the run goes; `run` and `session` are the last run's."""

    def __init__(
        self,
        model: Model | Source,
        strategy: Strategy | Chooses,
        config: TrainConfig | None,
        settings: RunSettings,
    ) -> None:
        self.model, self.strategy, self.config, self.settings = model, strategy, config, settings
        self.run: Run | None = None
        self._session: TrainSession | None = None

    @property
    def session(self) -> TrainSession:
        if self._session is None:
            self._session = TrainSession(self.model, self.config)
        return self._session

    def __call__(self, grid: Grid, context: Context) -> Run:
        settings, session = self.settings.told(context.run_config), self.session
        session.state.require_values()
        strategy = strategy_for(self.strategy, context)
        self.run = run = self._begun(settings)
        known = session.state.parameters
        moving = frozenset(name for name in names(session) if known[name].moves)
        watched = Watched(
            strategy, Watch(run, settings.seed, moving, self._evaluate, partial(_save, settings))
        )
        if run.done < settings.rounds:
            self._try_export(settings)
            wait_for(grid, max(settings.clients, least_nodes(strategy)), settings.timeout)
            watched.start(
                grid,
                record_of(run.arrays),
                num_rounds=settings.rounds - run.done,
                timeout=settings.timeout,
                train_config=settings.sent("train_config"),
                evaluate_config=settings.sent("evaluate_config"),
                evaluate_fn=watched.end_round,
            )
        self._finish(run, settings)
        return run

    def _begun(self, settings: RunSettings) -> Run:
        """The run that the folder holds, or a new one."""
        fresh = Run(values(self.session), settings.monitor)
        if settings.run_dir is None:
            return fresh
        make_folder(settings.run_dir, "run folder", WRITTEN)
        path = Path(settings.run_dir) / RUN_FILE
        found = resumed(path, fresh) if path.exists() else fresh
        if found.finished and found.done >= settings.rounds:
            logging.getLogger("flwr").info("run %s is finished; another one takes its place", path)
            return fresh
        if found.done:
            logging.getLogger("flwr").info("run %s goes on after round %d", path, found.done)
        found.finished = False
        return found

    def _evaluate(self, arrays: Mapping[str, Any]) -> dict[str, float]:
        if self.settings.evaluate is None:
            return {}
        put(self.session, arrays)
        given = self.settings.evaluate
        x, y = given if isinstance(given, tuple) and len(given) == 2 else (given, None)
        return self.session.evaluate(x, y)

    def _place(self, settings: RunSettings) -> Path | None:
        """Where the model goes."""
        if settings.export is not None or settings.run_dir is None:
            return None if settings.export is None else Path(settings.export)
        suffix = Path(str(self.model)).suffix if isinstance(self.model, (str, Path)) else ""
        name = f"model{suffix if suffix in ('.circle', '.tflite', '.onnx') else '.circle'}"
        return Path(settings.run_dir) / name

    def _try_export(self, settings: RunSettings) -> None:
        """What would be said after the last round is said before the first."""
        place = self._place(settings)
        if place is not None:
            trial = place.with_name(f"trial-{place.name}")
            self.session.export(trial)
            trial.unlink()

    def _finish(self, run: Run, settings: RunSettings) -> None:
        """The best round's weights into the session, and from there into files."""
        put(self.session, run.best or run.arrays)
        place = self._place(settings)
        if place is not None:
            self.session.export(place)
        if settings.run_dir is not None:
            write_text(Path(settings.run_dir) / PAGE, write_page(run, self.session.plan))
        run.finished = True
        _save(settings, run)


def server_app(
    model: Model | Source, strategy: Strategy | Chooses, config: TrainConfig | None = None, **settings: Any
) -> ServerApp:
    """A Flower ServerApp that trains this model with any of Flower's strategies.

    Args:
        model: a path, package, or loaded model, the same as the clients'.
        strategy: one of Flower's, or a function of the context that makes one.
        config: what is trained, and the metrics of `evaluate`; None takes the settings that the file carries.
        settings: of `RunSettings`: rounds, clients, evaluate, monitor, run_dir, export, seed, …

    Replies that do not fit are left out of their round and named in `app.circle_train.run.refused`.
    """
    app = ServerApp()
    server = Server(model, strategy, config, RunSettings(**settings))
    app.circle_train = server

    @app.main()
    def main(grid: Grid, context: Context) -> None:
        server(grid, context)

    return app


def _save(settings: RunSettings, run: Run) -> None:
    if settings.run_dir is not None:
        run.save(Path(settings.run_dir) / RUN_FILE)


def strategy_for(given: Any, context: Context) -> Strategy:
    """The strategy itself, or what the function of the context makes."""
    if isinstance(given, Strategy):
        return given
    made = given(context) if callable(given) and not isinstance(given, type) else given
    if not isinstance(made, Strategy):
        kind = f"the class {made.__name__}" if isinstance(made, type) else f"a {type(made).__name__}"
        raise ConfigError(
            f"strategy is {kind}, expected an object of flwr.serverapp.strategy, FedAvg(), "
            "or a function of the context that makes one"
        )
    return made


def least_nodes(strategy: Strategy) -> int:
    """Without how many nodes one of Flower's strategies would wait for ever."""
    kinds = [kind for kind in ("train", "evaluate") if setting_of(strategy, f"fraction_{kind}")]
    if not kinds:
        return 1
    return max(1, *(setting_of(strategy, f"min_{kind}_nodes") or 1 for kind in (*kinds, "available")))


def wait_for(grid: Grid, clients: int, timeout: float) -> None:
    """Flower's strategies sample whoever is there; a fleet that is still connecting is waited for."""
    if isinstance(grid, LocalGrid) and grid.clients < clients:
        raise ConfigError(
            f"there are {grid.clients} clients, and the run wants {clients} at least (clients; the strategy's "
            "min_available_nodes, min_train_nodes, min_evaluate_nodes); ask for fewer, or simulate more"
        )
    until = time.monotonic() + timeout
    while (there := len(list(grid.get_node_ids()))) < clients:
        if time.monotonic() > until:
            raise ConfigError(
                f"{there} clients are connected after {timeout:g} s, expected {clients}; start the others"
            )
        time.sleep(0.2)
