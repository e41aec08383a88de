"""Flower's strategies, mods and secure aggregation, unchanged, with our clients."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

pytest.importorskip("flwr")

from fleets import CLIENTS, CONFIG, MODEL, data
from flwr.clientapp import ClientApp
from flwr.clientapp.mod import LocalDpMod, adaptiveclipping_mod, fixedclipping_mod
from flwr.serverapp import Grid, ServerApp, strategy as strategies

import circle_train as ct
from circle_train import federated
from circle_train.federated.server.strategy_state import changed, snapshot


def course(strategy: Any, **changes: Any) -> Any:
    app = federated.client_app(MODEL, CONFIG, data(), mods=changes.pop("mods", ()))
    return federated.simulate(app, strategy, CLIENTS, **{"rounds": 2, **changes})


def moved(run: Any) -> float:
    start = ct.TrainSession(MODEL, CONFIG).parameters
    return max(float(np.abs(array - start[name]).max()) for name, array in run.arrays.items())


ORDINARY = {
    "FedAvg": {},
    "FedAvgM": {"server_momentum": 0.9},
    "FedAdagrad": {"eta": 0.01},
    "FedAdam": {"eta": 0.01},
    "FedYogi": {"eta": 0.01},
    "FedProx": {"proximal_mu": 0.1},
    "FedMedian": {},
    "FedTrimmedAvg": {"beta": 0.2},
    "Krum": {"num_malicious_nodes": 1},
    "MultiKrum": {"num_malicious_nodes": 1, "num_nodes_to_select": 3},
    "Bulyan": {"num_malicious_nodes": 0},
    "QFedAvg": {"client_learning_rate": 0.05, "train_loss_key": "loss"},
}


@pytest.mark.parametrize("name", ORDINARY)
def test_a_strategy_runs_unchanged(name: str) -> None:
    run = course(getattr(strategies, name)(**ORDINARY[name]))
    assert run.done == 2 and not run.refused
    assert 0 < moved(run) < 1
    assert all(array.dtype == np.float32 for array in run.arrays.values())


@pytest.mark.parametrize(
    ("wrapper", "mod"),
    [
        ("DifferentialPrivacyClientSideFixedClipping", fixedclipping_mod),
        ("DifferentialPrivacyServerSideFixedClipping", None),
        ("DifferentialPrivacyClientSideAdaptiveClipping", adaptiveclipping_mod),
        ("DifferentialPrivacyServerSideAdaptiveClipping", None),
    ],
)
def test_differential_privacy_runs_unchanged(wrapper: str, mod: Any) -> None:
    norm = {"clipping_norm": 1.0} if "Fixed" in wrapper else {}
    strategy = getattr(strategies, wrapper)(
        strategies.FedAvg(), noise_multiplier=0.02, num_sampled_clients=CLIENTS, **norm
    )
    run = course(strategy, mods=[mod] if mod else [], train_config={})
    assert run.done == 2 and not run.refused
    assert moved(run) > 0


def test_noise_is_added_by_the_clients() -> None:
    quiet = course(strategies.FedAvg())
    noisy = course(strategies.FedAvg(), mods=[LocalDpMod(10.0, 0.01, 1.0, 0.5)])
    assert not noisy.refused
    assert any(not np.array_equal(quiet.arrays[n], noisy.arrays[n]) for n in quiet.arrays)


def test_secure_aggregation_gives_the_mean_that_nobody_saw_the_parts_of() -> None:
    from flwr.client.mod import secaggplus_mod
    from flwr.common import ndarrays_to_parameters, parameters_to_ndarrays
    from flwr.server import LegacyContext, ServerConfig
    from flwr.server.strategy import FedAvg
    from flwr.server.workflow import DefaultWorkflow, SecAggPlusWorkflow

    start = [a.numpy() for a in federated.arrays(ct.TrainSession(MODEL, CONFIG)).values()]
    found: list[Any] = []

    class Told(FedAvg):  # type: ignore[misc]
        def aggregate_fit(self, server_round: int, results: Any, failures: Any) -> Any:
            made = super().aggregate_fit(server_round, results, failures)
            found[:] = parameters_to_ndarrays(made[0])
            return made

    server = ServerApp()

    @server.main()
    def main(grid: Grid, context: Any) -> None:
        strategy = Told(
            fraction_evaluate=0.0,
            min_available_clients=CLIENTS,
            initial_parameters=ndarrays_to_parameters(start),
        )
        legacy = LegacyContext(context, config=ServerConfig(num_rounds=1), strategy=strategy)
        secure = SecAggPlusWorkflow(num_shares=3, reconstruction_threshold=2, max_weight=10.0, timeout=5)
        DefaultWorkflow(fit_workflow=secure)(grid, legacy)

    client_fn = federated.numpy_client(MODEL, CONFIG, data(), shuffle=False)
    federated.simulate(ClientApp(client_fn, mods=[secaggplus_mod]), server, CLIENTS)
    open_run = federated.simulate(
        federated.client_app(MODEL, CONFIG, data(), shuffle=False), strategies.FedAvg(), CLIENTS, rounds=1
    )
    for array, mean in zip(found, open_run.arrays.values(), strict=True):
        np.testing.assert_allclose(array, mean, rtol=0, atol=1e-5)
    assert found


def test_flowers_own_loop_runs_with_our_grid_and_client() -> None:
    """Nobody has to take our server."""
    results: list[Any] = []
    server = ServerApp()

    @server.main()
    def main(grid: Grid, context: Any) -> None:
        start = federated.arrays(ct.TrainSession(MODEL, CONFIG))
        results.append(strategies.FedAvg().start(grid, start, num_rounds=2))

    federated.simulate(federated.client_app(MODEL, CONFIG, data()), server, CLIENTS)
    ours = course(strategies.FedAvg())
    for name, array in results[0].arrays.items():
        np.testing.assert_array_equal(array.numpy(), ours.arrays[name])


def test_only_what_a_strategy_changed_is_kept_of_it() -> None:
    strategy = strategies.FedAvgM(server_momentum=0.9)
    strategy.same, strategy.moved = np.zeros(3), np.zeros(3)
    before = snapshot(strategy)
    strategy.same, strategy.moved = np.zeros(3), np.array([0.0, 1.0, 0.0])
    kept, arrays = changed(strategy, before)
    assert kept.keys() == {"moved"} and [array.tolist() for array in arrays.values()] == [[0.0, 1.0, 0.0]]
    strategy.moved = np.zeros((3, 1))
    assert changed(strategy, before)[0].keys() == {"moved"}
