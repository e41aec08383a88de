"""What a user of fleets may get wrong is said in one sentence, and before the first round where that can be."""

from __future__ import annotations

import logging
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from circle_train.errors import ConfigError, DataError

pytest.importorskip("flwr")

from fleets import CLIENTS, CONFIG, MODEL, data
from flwr.app import Array, ArrayRecord
from flwr.serverapp.strategy import FedAvg

from circle_train import federated
from circle_train.federated.client.settings import asked


def simulated(strategy: Any = None, of: Any = None, clients: int = CLIENTS, **settings: Any) -> Any:
    app = federated.client_app(MODEL, CONFIG, of or data())
    return federated.simulate(app, strategy or FedAvg(), clients, **{"rounds": 1, **settings})


def not_to_be_asked(context: Any) -> Any:
    raise AssertionError("a round began")


class Made(FedAvg):  # type: ignore[misc]
    """A strategy of somebody's own, which makes of the mean what it likes."""

    def __init__(self, of: Any) -> None:
        super().__init__()
        self.of = of

    def aggregate_train(self, server_round: int, replies: Any) -> Any:
        arrays, metrics = super().aggregate_train(server_round, replies)
        return ArrayRecord(
            {n: Array(a) for n, a in self.of({n: a.numpy() for n, a in arrays.items()})}
        ), metrics


@pytest.mark.parametrize(
    ("of", "said"),
    [
        (lambda mean: {f"my/{n}": a for n, a in mean.items()}.items(), "'fc0/W' is missing"),
        (lambda mean: {n: a * np.float32(np.nan) for n, a in mean.items()}.items(), "not finite"),
        (lambda mean: {n: a[:1] for n, a in mean.items()}.items(), "expected float32"),
    ],
    ids=["names", "NaN", "shapes"],
)
def test_what_a_strategy_makes_must_be_the_model(of: Any, said: str, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=f"round 1: what Made made of the replies is no model: .*{said}"):
        simulated(Made(of), run_dir=tmp_path)
    assert not (tmp_path / "run.safetensors").exists()


def test_a_strategy_may_make_more_than_the_model() -> None:
    run = simulated(Made(lambda mean: {**mean, "my/extra": np.ones(3, np.float32)}.items()))
    assert list(run.arrays) == list(simulated().arrays)


@pytest.mark.parametrize(
    "strategy", [FedAvg, "fedavg", lambda context: FedAvg], ids=["class", "name", "made"]
)
def test_a_strategy_is_an_object(strategy: Any) -> None:
    with pytest.raises(ConfigError, match=r"strategy is .*, expected an object"):
        simulated(strategy)


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"clients": 1}, "there are 1 clients, and the run wants 2 at least"),
        ({"clients": 3, "strategy": FedAvg(min_train_nodes=4)}, "wants 4 at least"),
        ({"clients": 2, "run_config": {"clients": 3}}, "wants 3 at least"),
        ({"timeout": "soon"}, "timeout is 'soon'"),
        ({"train_config": {"rate": object()}}, "train_config: Not all values"),
        ({"export": "net.pt"}, "suffix is '.pt'"),
        ({"export": "net.onnx"}, "did not come from ONNX"),
        ({"export": "/nowhere/net.circle"}, "cannot be written"),
    ],
)
def test_what_cannot_end_well_is_refused_before_the_first_round(
    settings: dict[str, Any], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Flower's strategies would wait for nodes that never come; an export would fail when all rounds are over."""
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigError, match=said):
        simulated(**{"of": not_to_be_asked, **settings})
    assert not list(tmp_path.iterdir())


def test_a_strategy_that_does_not_train_waits_for_nobody() -> None:
    assert simulated(FedAvg(fraction_train=0.0, fraction_evaluate=0.0), clients=1).done == 1


def test_a_metric_that_nobody_measures_cannot_be_watched() -> None:
    with pytest.raises(
        ConfigError, match=r"monitor 'acuracy' was not measured, expected one of loss, mean_abs"
    ):
        simulated(monitor="acuracy")


def test_a_client_that_exits_is_left_out_and_said(caplog: pytest.LogCaptureFixture) -> None:
    give = data()
    log = logging.getLogger("flwr")
    log.addHandler(caplog.handler)
    try:
        run = simulated(
            of=lambda context: sys.exit(3) if not context.node_config["partition-id"] else give(context)
        )
    finally:
        log.removeHandler(caplog.handler)
    assert run.refused[0].why == "SystemExit: 3" and run.rounds[0].clients == CLIENTS - 1
    assert "round 1: client 0 is left out (SystemExit: 3)" in caplog.text


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"trian": 1}, "a dict of 'trian'; expected"),
        ({}, "a dict of nothing"),
        ({"train": None}, "no data to train"),
    ],
)
def test_a_client_without_samples_says_so(given: dict[str, Any], said: str) -> None:
    give = data()
    run = simulated(of=lambda context: give(context) if context.node_config["partition-id"] else given)
    assert [one.client for one in run.refused] == [0, 0] and said in run.refused[0].why


def test_a_client_may_have_samples_to_train_on_alone() -> None:
    give = data()
    run = simulated(of=lambda context: {"train": give(context), "evaluate": None})
    assert run.rounds[0].clients == CLIENTS and not run.rounds[0].clients_evaluated


@pytest.mark.parametrize(
    ("name", "value"), [("server-round", "x"), ("server-round", -1), ("local-epochs", 0)]
)
def test_what_a_server_asks_is_looked_at(name: str, value: Any) -> None:
    with pytest.raises(ConfigError, match=f"{name} is {value!r}"):
        asked({name: value}, {}, 1)
