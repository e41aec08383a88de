"""Flower's programs, started so that they reach for nothing but loopback, and ended when the run is over."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from circle_train.errors import ConfigError
from circle_train.format.atomic import make_folder, write_text
from circle_train.record import record

QUIET = {
    "FLWR_TELEMETRY_ENABLED": "0",
    "FLWR_DISABLE_UPDATE_CHECK": "1",
    "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1",
    "RAY_USAGE_STATS_ENABLED": "0",
}
"""Telemetry, the search for newer versions, the installation of packages, Ray's telemetry: off."""
STEADY = {"GRPC_ENABLE_FORK_SUPPORT": "0"}
"""Its handlers now and then end the process that Flower's forks to start Ray's (a segmentation fault in cygrpc)."""
HOME, CONNECTION, LOOPBACK = ".flwr", "fleet", "127.0.0.1"
STARTS = 4
"""How often Flower may try to start the SuperLink of a simulation."""
STARTING, ENDING = 60.0, 10.0
"""Seconds that a daemon may take to listen, and to end."""


def simulate(folder: str, clients: int, settings: str) -> int:
    """`flwr run` with so many simulated clients; its SuperLink ends with it."""
    link, control = free_ports(2)
    ports = {"FLWR_LOCAL_SUPERLINK_HTTP_API_PORT": link, "FLWR_LOCAL_CONTROL_API_PORT": control}
    lines = ['address = ":local-in-memory:"', f"options.num-supernodes = {clients}"]
    environment = _environment(folder, lines, {name: str(port) for name, port in ports.items()})
    mark = f"{LOOPBACK}:{control}"
    try:
        return _patiently(folder, clients, settings, environment, mark)
    finally:
        _end(mark)


def _patiently(folder: str, clients: int, settings: str, environment: Mapping[str, str], mark: str) -> int:
    """`flwr run`, again where its SuperLink was not up in time: Flower gives it 15 s, which a small or busy machine may need.

    One that came up outlives the run; of one that did not there is nothing but its folder.
    """
    tried = Path(environment["FLWR_HOME"]) / "local-superlink"
    for left in reversed(range(STARTS)):
        shutil.rmtree(tried, ignore_errors=True)
        status = _run(folder, clients, settings, environment)
        if not status or not left or _daemons(mark) or not tried.exists():
            break
    return status


@record
class Link:
    """A SuperLink that listens."""

    environment: Mapping[str, str]
    """With which Flower's programs know it."""
    fleet: str
    """Where SuperNodes find it."""
    one_port: bool
    """Whether all its interfaces are on one, as in newer Flowers."""

    def node(self, place: int, count: int) -> tuple[list[str], Path]:
        """How a SuperNode is started that has this place in the fleet, and where it writes what it does."""
        (port,) = free_ports(1)
        own = ["--port", str(port)] if self.one_port else ["--clientappio-api-address", f"{LOOPBACK}:{port}"]
        config = f"partition-id={place} num-partitions={count}"
        command = ["flower-supernode", "--insecure", "--superlink", self.fleet, *own, "--node-config", config]
        return command, Path(self.environment["FLWR_HOME"]) / f"supernode{place}.log"


def deploy(folder: str, clients: int, settings: str) -> int:
    """A SuperLink, SuperNodes with a partition each, and `flwr run` on them."""
    with superlink(folder) as link:
        nodes = [link.node(place, clients) for place in range(clients)]
        with _all(nodes, link.environment):
            return _run(folder, clients, settings, link.environment)


@contextmanager
def superlink(folder: str) -> Iterator[Link]:
    """A SuperLink on loopback, for as long as it is needed."""
    control, fleet, app = free_ports(3)
    environment = _environment(folder, [f'address = "{LOOPBACK}:{control}"', "insecure = true"], {})
    one_port = "--port" in _help("flower-superlink", environment)
    fleet = control if one_port else fleet
    places = (
        ["--host", LOOPBACK, "--port", str(control)]
        if one_port
        else [
            *("--control-api-address", f"{LOOPBACK}:{control}", "--fleet-api-address", f"{LOOPBACK}:{fleet}"),
            *("--serverappio-api-address", f"{LOOPBACK}:{app}"),
        ]
    )
    log = Path(environment["FLWR_HOME"]) / "superlink.log"
    with daemon(["flower-superlink", "--insecure", *places], environment, log):
        for port in {control, fleet}:
            listening(port, log)
        yield Link(environment, f"{LOOPBACK}:{fleet}", one_port)


@contextmanager
def _all(commands: Sequence[tuple[list[str], Path]], environment: Mapping[str, str]) -> Iterator[list[int]]:
    if not commands:
        yield []
        return
    command, log = commands[0]
    with daemon(command, environment, log) as first, _all(commands[1:], environment) as others:
        yield [first, *others]


@contextmanager
def daemon(command: Sequence[str], environment: Mapping[str, str], log: Path) -> Iterator[int]:
    """A program that runs meanwhile, with all that it starts."""
    with open(log, "wb") as file:
        process = subprocess.Popen(
            command, env=environment, stdout=file, stderr=subprocess.STDOUT, start_new_session=True
        )
    try:
        yield process.pid
    finally:
        for sign in (signal.SIGTERM, signal.SIGKILL):
            with suppress(ProcessLookupError):
                os.killpg(process.pid, sign)
            with suppress(subprocess.TimeoutExpired):
                process.wait(ENDING)


def listening(port: int, log: Path) -> None:
    """Wait until somebody listens."""
    until = time.monotonic() + STARTING
    while time.monotonic() < until:
        with suppress(OSError), socket.create_connection((LOOPBACK, port), 1.0):
            return
        time.sleep(0.1)
    raise ConfigError(
        f"flower-superlink does not listen on port {port} after {STARTING:g} s; look into {log}"
    )


def free_ports(count: int) -> list[int]:
    """Ports that nobody uses just now."""
    sockets = [socket.socket() for _ in range(count)]
    for one in sockets:
        one.bind((LOOPBACK, 0))
    ports = [int(one.getsockname()[1]) for one in sockets]
    for one in sockets:
        one.close()
    return ports


def _environment(folder: str, connection: Sequence[str], more: Mapping[str, str]) -> dict[str, str]:
    """The caller's, with Flower's files in the app's folder, and its programs those beside this Python."""
    if not (Path(folder) / "pyproject.toml").exists():
        raise ConfigError(
            f"{folder}: there is no app (no pyproject.toml); make one with circle-train federate new"
        )
    home = Path(folder).absolute() / HOME
    make_folder(home, "Flower's folder")
    text = [f'[superlink]\ndefault = "{CONNECTION}"\n', f"[superlink.{CONNECTION}]", *connection]
    write_text(home / "config.toml", "\n".join(text) + "\n")
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
    environment = {**os.environ, "PATH": path, "FLWR_HOME": str(home), **QUIET, **STEADY, **more}
    if shutil.which("flwr", path=path) is None:
        raise ConfigError(
            "Flower is not installed; pip install 'circle-train[federated]', with Python 3.11 or later"
        )
    return environment


def _run(folder: str, clients: int, settings: str, environment: Mapping[str, str]) -> int:
    """0 only if Flower says that the run was completed."""
    config = ["--run-config", f"clients={clients} {settings}".strip()]
    done = subprocess.run(["flwr", "run", folder, "--stream", *config], env=environment, check=False)
    return done.returncode or (0 if "completed" in final_status(environment) else 1)


def final_status(environment: Mapping[str, str]) -> str:
    """Of the run that was started last, whose logs may end before it does."""
    until = time.monotonic() + STARTING
    while not (status := _status(environment)).startswith("finished") and time.monotonic() < until:
        time.sleep(0.5)
    return status


def _status(environment: Mapping[str, str]) -> str:
    told = subprocess.run(
        ["flwr", "ls", "--format", "json"], env=environment, capture_output=True, text=True, check=False
    )
    try:
        runs = json.loads(told.stdout)["runs"]
        return str(runs[0]["status"])
    except (ValueError, LookupError, TypeError):
        return f"unknown ({told.stdout[:80]}{told.stderr[:80]})"


def _help(program: str, environment: Mapping[str, str]) -> str:
    told = subprocess.run([program, "--help"], env=environment, capture_output=True, text=True, check=False)
    return told.stdout


def _end(mark: str) -> None:
    """Ask the SuperLinks whose command line holds the mark to end, and then see to it."""
    for sign in (signal.SIGTERM, signal.SIGKILL):
        until = time.monotonic() + ENDING
        while (left := _daemons(mark)) and time.monotonic() < until:
            for process in left:
                with suppress(ProcessLookupError):
                    os.kill(process, sign)
            time.sleep(0.2)


def _daemons(mark: str) -> list[int]:
    """SuperLinks whose command line holds the mark, however narrow the terminal is said to be."""
    every = ["ps", "-ww", "-eo", "pid=,args="]
    listed = subprocess.run(every, capture_output=True, text=True, check=False).stdout
    rows = [line.split(maxsplit=1) for line in listed.splitlines()]
    return [int(row[0]) for row in rows if len(row) == 2 and "flower-superlink" in row[1] and mark in row[1]]
