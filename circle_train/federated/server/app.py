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
from circle_train.federated.records import names, put, record_of, values
from circle_train.federated.server.page import write_page
from circle_train.federated.server.run import Run, resumed
from circle_train.federated.server.watched import Watch, Watched
from circle_train.format.atomic import make_folder, write_text
from circle_train.model import Model, Source
from circle_train.record import record
from circle_train.session import TrainSession
from circle_train.settings.config import TrainConfig

RUN_FILE, PAGE = "run.safetensors", "report.html"
Chooses = Callable[[Context], Strategy]


@record
class Course:
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
    monitor: str = "loss"
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

    def told(self, config: Mapping[str, Any]) -> Course:
        """The same but for what the run's config says."""
        keys = {"num-server-rounds": "rounds", "clients": "clients", "run-dir": "run_dir"}
        return replace(self, **{field: config[key] for key, field in keys.items() if key in config})


class Server:
    """A model, a strategy, and how the run goes; `run` and `session` are the last run's."""

    def __init__(
        self, model: Model | Source, strategy: Strategy | Chooses, config: TrainConfig | None, course: Course
    ) -> None:
        self.model, self.strategy, self.config, self.course = model, strategy, config, course
        self.run: Run | None = None
        self._session: TrainSession | None = None

    @property
    def session(self) -> TrainSession:
        if self._session is None:
            self._session = TrainSession(self.model, self.config)
        return self._session

    def __call__(self, grid: Grid, context: Context) -> Run:
        course, session = self.course.told(context.run_config), self.session
        session.state.require_values()
        strategy = self.strategy if isinstance(self.strategy, Strategy) else self.strategy(context)
        self.run = run = self._begun(course)
        known = session.state.parameters
        moving = frozenset(name for name in names(session) if known[name].moves)
        watched = Watched(strategy, Watch(run, course.seed, moving, self._evaluate, partial(_save, course)))
        if run.done < course.rounds:
            wait_for(grid, course.clients, course.timeout)
            watched.start(
                grid,
                record_of(run.arrays),
                num_rounds=course.rounds - run.done,
                timeout=course.timeout,
                train_config=ConfigRecord(dict(course.train_config or {})),
                evaluate_config=ConfigRecord(dict(course.evaluate_config or {})),
                evaluate_fn=watched.end_round,
            )
        self._finish(run, course)
        return run

    def _begun(self, course: Course) -> Run:
        """The run that the folder holds, or a new one."""
        fresh = Run(values(self.session), course.monitor)
        if course.run_dir is None:
            return fresh
        make_folder(course.run_dir, "run folder")
        path = Path(course.run_dir) / RUN_FILE
        found = resumed(path, fresh) if path.exists() else fresh
        if found.finished and found.done >= course.rounds:
            logging.getLogger("flwr").info("run %s is finished; another one takes its place", path)
            return fresh
        if found.done:
            logging.getLogger("flwr").info("run %s goes on after round %d", path, found.done)
        found.finished = False
        return found

    def _evaluate(self, arrays: Mapping[str, Any]) -> dict[str, float]:
        if self.course.evaluate is None:
            return {}
        put(self.session, arrays)
        given = self.course.evaluate
        x, y = given if isinstance(given, tuple) and len(given) == 2 else (given, None)
        return self.session.evaluate(x, y)

    def _finish(self, run: Run, course: Course) -> None:
        """The best round's weights into the session, and from there into files."""
        put(self.session, run.best or run.arrays)
        folder = None if course.run_dir is None else Path(course.run_dir)
        suffix = Path(str(self.model)).suffix if isinstance(self.model, (str, Path)) else ""
        name = f"model{suffix if suffix in ('.circle', '.tflite', '.onnx') else '.circle'}"
        export = course.export or (folder and folder / name)
        if export:
            self.session.export(export)
        if folder:
            write_text(folder / PAGE, write_page(run, self.session.plan))
        run.finished = True
        _save(course, run)


def server_app(
    model: Model | Source,
    strategy: Strategy | Chooses,
    config: TrainConfig | None = None,
    **course: Any,
) -> ServerApp:
    """A Flower ServerApp that trains this model with any of Flower's strategies.

    Args:
        model: a path, package, or loaded model, the same as the clients'.
        strategy: one of Flower's, or a function of the context that makes one.
        config: what is trained, and the metrics of `evaluate`; None takes the settings that the file carries.
        course: settings of `Course`: rounds, clients, evaluate, monitor, run_dir, export, seed, …

    Replies that do not fit are left out of their round and named in `app.circle_train.run.refused`.
    """
    app = ServerApp()
    server = Server(model, strategy, config, Course(**course))
    app.circle_train = server

    @app.main()
    def main(grid: Grid, context: Context) -> None:
        server(grid, context)

    return app


def _save(course: Course, run: Run) -> None:
    if course.run_dir is not None:
        run.save(Path(course.run_dir) / RUN_FILE)


def wait_for(grid: Grid, clients: int, timeout: float) -> None:
    """Flower's strategies sample whoever is there; a fleet that is still connecting is waited for."""
    until = time.monotonic() + timeout
    while (there := len(list(grid.get_node_ids()))) < clients:
        if time.monotonic() > until:
            raise ConfigError(
                f"{there} clients are connected after {timeout:g} s, expected {clients}; start the others"
            )
        time.sleep(0.2)
