"""The folder that `federate new` writes."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from circle_train.checkpoints import safetensors
from circle_train.cli.federate import launch
from circle_train.cli.main import main
from circle_train.federated.new_app import TEMPLATE, new_app

LOCAL = """
import sys; sys.path.insert(0, sys.argv[1])
from circle_train import federated
from fleet.client_app import app as clients
from fleet.server_app import app as server
federated.simulate(clients, server, 2, run_config={"num-server-rounds": 2, "run-dir": sys.argv[2]})
"""


def weights(folder: Path) -> dict[str, np.ndarray]:
    path = folder / "run.safetensors"
    arrays, _ = safetensors.decode(path.read_bytes(), str(path))
    return arrays


def test_a_new_app_says_what_to_do_next(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["federate", "new", str(tmp_path / "My Fleet")]) == 0
    assert "circle-train federate run" in capsys.readouterr().out
    assert all((tmp_path / "My Fleet" / name).exists() for name in TEMPLATE)
    assert 'name = "my-fleet"' in (tmp_path / "My Fleet/pyproject.toml").read_text()
    assert main(["federate", "new", str(tmp_path / "My Fleet")]) == 1
    assert "is there already" in capsys.readouterr().err


def test_a_new_app_names_no_packages(tmp_path: Path) -> None:
    """`flwr run` would install them anew for every run, from the network."""
    assert "dependencies = []" in (new_app(tmp_path / "app") / "pyproject.toml").read_text()


def test_a_folder_without_an_app_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["federate", "run", str(tmp_path)]) == 1
    assert "make one with circle-train federate new" in capsys.readouterr().err


def test_a_new_app_learns_in_one_process(tmp_path: Path) -> None:
    pytest.importorskip("flwr")
    app = new_app(tmp_path / "app")
    command = [sys.executable, "-c", LOCAL, str(app), str(tmp_path / "run")]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert {"model.circle", "report.html", "run.safetensors"} <= {
        p.name for p in (tmp_path / "run").iterdir()
    }


@pytest.mark.parametrize(
    ("late", "daemon", "attempt", "runs"),
    [
        (2, False, True, 3),
        (9, False, True, launch.STARTS),
        (9, True, True, 1),
        (9, False, False, 1),
        (0, True, True, 1),
    ],
    ids=["late", "too late", "the run failed", "the app is wrong", "well"],
)
def test_a_superlink_that_is_not_up_in_time_is_started_again(
    late: int, daemon: bool, attempt: bool, runs: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Flower kills it after 15 seconds; a failure of the app or of its run is no reason to begin again."""
    done: list[int] = []

    def run(*_: Any) -> int:
        done.append(1)
        if attempt:
            (tmp_path / "local-superlink").mkdir()
        return 1 if len(done) <= late else 0

    monkeypatch.setattr(launch, "_run", run)
    monkeypatch.setattr(launch, "_daemons", lambda mark: [1] if daemon else [])
    status = launch._patiently("app", 2, "", {"FLWR_HOME": str(tmp_path)}, "127.0.0.1:1")
    assert len(done) == runs and status == (0 if late < runs else 1)


def test_daemons_of_long_command_lines_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """COLUMNS is set in many a shell, and under pytest."""
    monkeypatch.setenv("COLUMNS", "80")
    words = ["import time; time.sleep(60)", "flower-superlink", "x" * 100, "127.0.0.1:mark"]
    with subprocess.Popen([sys.executable, "-c", *words]) as process:
        try:
            assert launch._daemons("127.0.0.1:mark") == [process.pid]
        finally:
            process.kill()


@pytest.mark.slow(seconds=40)
@pytest.mark.parametrize("how", ["run", "deploy"])
def test_flower_gives_the_bits_of_one_process_with_only_loopback(how: str, tmp_path: Path) -> None:
    """Ray, and two SuperNodes, in a network namespace of their own where that is allowed.

    Not started in the source tree, from which Python would take the package even where another one is installed and has
    the compiled kernels: Flower's programs take that one.
    """
    pytest.importorskip("flwr")
    if how == "run":
        pytest.importorskip("ray")
    app = new_app(tmp_path / "app")
    command = [sys.executable, "-m", "circle_train", "federate", how, str(app), "--clients", "2"]
    command += ["--run-config", f'num-server-rounds=2 run-dir="{tmp_path / "there"}"']
    alone = ["unshare", "-rn", "sh", "-c", 'ip link set lo up && exec "$@"', "sh"]
    isolated = subprocess.run([*alone, "true"], capture_output=True, check=False).returncode == 0
    path = f"{sysconfig.get_path('scripts')}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        [*(alone if isolated else []), *command],
        cwd=tmp_path,
        env={**os.environ, "PATH": path},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, f"{done.stdout[-2000:]}\n{done.stderr[-2000:]}"
    here = [sys.executable, "-c", LOCAL, str(app), str(tmp_path / "here")]
    subprocess.run(here, cwd=tmp_path, check=True, capture_output=True)
    one, other = weights(tmp_path / "here"), weights(tmp_path / "there")
    assert one.keys() == other.keys()
    for name, array in one.items():
        np.testing.assert_array_equal(array, other[name])
