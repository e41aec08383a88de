"""Fleets in one process: numbers, order, memory, and clients that fail."""

from __future__ import annotations

import pkgutil
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import circle_train as ct
from circle_train.errors import ConfigError

pytest.importorskip("flwr")

from fleets import CLIENTS, CONFIG, MODEL, data, samples
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp.strategy import FedAvg

from circle_train import federated


def fleet(**how: Any) -> ClientApp:
    return federated.client_app(MODEL, CONFIG, data(), **how)


def simulated(
    app: ClientApp | None = None, strategy: Any = None, clients: int = CLIENTS, **course: Any
) -> Any:
    return federated.simulate(app or fleet(), strategy or FedAvg(), clients, **{"rounds": 2, **course})


def equal(one: Any, other: Any) -> bool:
    return list(one) == list(other) and all(np.array_equal(one[n], other[n]) for n in one)


def test_a_round_is_the_weighted_mean_of_what_each_client_learns_alone() -> None:
    run = simulated(fleet(shuffle=False), rounds=1)
    x, y = samples()
    means: dict[str, Any] = {}
    counts = [10 - place for place in range(CLIENTS)]
    for place, number in enumerate(counts):
        alone = ct.TrainSession(MODEL, CONFIG)
        alone.fit(x[place, :number], y[place, :number], epochs=1, shuffle=False, verbose=0)
        for name, array in alone.parameters.trainable().items():
            means[name] = means.get(name, 0) + array.astype(np.float64) * number / sum(counts)
    for name, mean in means.items():
        np.testing.assert_allclose(run.arrays[name], mean, rtol=0, atol=1e-6)


def test_two_runs_give_the_same_bits_and_another_seed_others() -> None:
    one, same, other = simulated(), simulated(), simulated(fleet(seed=1))
    assert equal(one.arrays, same.arrays)
    assert not equal(one.arrays, other.arrays)


def test_streaming_agrees_with_flowers_averaging() -> None:
    one, other = simulated(), simulated(strategy=federated.StreamingFedAvg())
    for name, array in one.arrays.items():
        np.testing.assert_allclose(array, other.arrays[name], rtol=0, atol=1e-6)
    assert one.history.keys() == other.history.keys()
    for name, series in one.history.items():
        np.testing.assert_allclose(series, other.history[name], rtol=1e-5)


def test_memory_does_not_grow_with_the_clients() -> None:
    x, y = samples(1)
    app = federated.client_app(MODEL, CONFIG, lambda context: (x[0], y[0]))
    strategy = federated.StreamingFedAvg(fraction_evaluate=0.0)
    simulated(app, strategy, 4, rounds=1)
    peaks = []
    for clients in (20, 200):
        tracemalloc.start()
        simulated(app, strategy, clients, rounds=1)
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert (
        peaks[1] < peaks[0] + 180 * 1000
    )  # a model of 4 kB, a message of 2 kB: less than either for each more


def broken(fault: str, client: int = 2) -> ClientApp:
    """A fleet of which one client answers with a fault, or raises."""
    app = fleet(shuffle=False)

    def mod(message: Message, context: Any, call: Any) -> Message:
        reply = call(message, context)
        if context.node_config["partition-id"] != client or message.metadata.message_type != "train":
            return reply
        if fault == "raises":
            raise OSError("no battery left")
        if fault == "nothing":
            return None
        arrays = {name: array.numpy().copy() for name, array in reply.content["arrays"].items()}
        first = next(iter(arrays))
        if fault == "nan":
            arrays[first].flat[0] = np.nan
        elif fault == "names":
            arrays["other"] = arrays.pop(first)
        elif fault == "shapes":
            arrays[first] = arrays[first][:-1]
        metrics = dict(reply.content["metrics"])
        if fault == "weight":
            metrics["num-examples"] = 0
        elif fault == "heavy":
            metrics["num-examples"] = 2**60
        elif fault == "loss":
            metrics["loss"] = float("inf")
        elif fault == "huge":
            metrics["loss"] = -1e308
        elif fault == "list":
            metrics["loss"] = [1.0, 2.0]
        elif fault == "metrics":
            metrics["extra"] = 1.0
        content = {
            "arrays": ArrayRecord({name: Array(array) for name, array in arrays.items()}),
            "metrics": MetricRecord(metrics),
            "client": reply.content["client"],
        }
        if fault == "empty":
            content = {}
        return Message(RecordDict(content), reply_to=message)

    return federated.client_app(MODEL, CONFIG, app.circle_train.data, mods=[mod], shuffle=False)


@pytest.mark.parametrize("strategy", [FedAvg, federated.StreamingFedAvg])
@pytest.mark.parametrize("client", [0, 2])
@pytest.mark.parametrize(
    "fault",
    [
        "raises",
        "nothing",
        "nan",
        "names",
        "shapes",
        "weight",
        "heavy",
        "loss",
        "huge",
        "list",
        "metrics",
        "empty",
    ],
)
def test_a_client_that_fails_costs_the_round_nothing_and_is_named(
    fault: str, client: int, strategy: Any
) -> None:
    run = simulated(broken(fault, client), strategy(), rounds=2)
    assert [(one.round, one.client) for one in run.refused] == [(1, client), (2, client)]
    assert all(one.why for one in run.refused)
    assert [one.clients for one in run.rounds] == [CLIENTS - 1] * 2
    others = [place for place in range(CLIENTS) if place != client]
    x, y = samples()

    def without(context: Any) -> Any:
        place = others[context.node_config["partition-id"]]
        return x[place, : 10 - place], y[place, : 10 - place]

    app = federated.client_app(MODEL, CONFIG, without, shuffle=False)
    alone = simulated(app, strategy(), CLIENTS - 1, rounds=2)
    assert equal(run.arrays, alone.arrays)


def test_a_client_that_lies_about_its_place_is_known_by_its_node() -> None:
    def mod(message: Message, context: Any, call: Any) -> Message:
        reply = call(message, context)
        reply.content["client"] = ConfigRecord({"partition-id": "../0"})
        return reply

    app = federated.client_app(MODEL, CONFIG, data(), mods=[mod])
    run = simulated(app, rounds=1)
    assert run.rounds[0].clients == CLIENTS and not run.refused


def test_a_run_without_a_good_reply_keeps_its_weights() -> None:
    def nothing(context: Any) -> Any:
        raise OSError("no data")

    run = simulated(federated.client_app(MODEL, CONFIG, nothing))
    assert len(run.refused) == 4 * CLIENTS  # training and evaluation, two rounds
    start = ct.TrainSession(MODEL, CONFIG).parameters.trainable()
    assert equal(run.arrays, start)


def test_the_best_round_is_kept() -> None:
    x, y = samples()
    app = federated.client_app(MODEL, CONFIG.replace(optimizer=ct.optimizers.SGD(learning_rate=0.05)), data())

    def course(context: Any) -> Any:
        class Worse(FedAvg):  # type: ignore[misc]
            def aggregate_train(self, number: int, replies: Any) -> Any:
                arrays, metrics = super().aggregate_train(number, replies)
                if number == 2:
                    arrays = ArrayRecord({n: Array(a.numpy() * 3) for n, a in arrays.items()})
                return arrays, metrics

        return Worse()

    server = federated.server_app(MODEL, course, CONFIG, rounds=2, evaluate=(x[0], y[0]))
    run = federated.simulate(app, server, CLIENTS)
    assert run.best_round == 1 and run.history["loss"][0] < run.history["loss"][1]
    found = server.circle_train.session.evaluate(x[0], y[0])["loss"]
    assert found == run.history["loss"][0]


def test_a_run_of_a_killed_server_ends_in_the_same_bits(tmp_path: Path) -> None:
    from flwr.serverapp.strategy import FedAdam, FedAvgM

    for strategy in (
        lambda: FedAdam(fraction_train=0.5, eta=0.01, beta_1=0.9, beta_2=0.99),
        lambda: FedAvgM(server_momentum=0.9, fraction_train=0.5),
    ):
        folder = tmp_path / type(strategy()).__name__
        whole = simulated(strategy=strategy(), rounds=5)
        simulated(strategy=strategy(), rounds=2, run_dir=folder)
        again = simulated(strategy=strategy(), rounds=5, run_dir=folder)
        assert equal(whole.arrays, again.arrays)
        assert again.history == whole.history
        assert (folder / "model.circle").exists() and (folder / "report.html").exists()
        assert simulated(strategy=strategy(), rounds=5, run_dir=folder).done == 5


def test_a_run_of_another_model_is_refused(tmp_path: Path) -> None:
    simulated(rounds=1, run_dir=tmp_path)
    other = federated.client_app(MODEL, CONFIG.replace(trainable=("last", 2)), data())
    with pytest.raises(ct.CheckpointError, match="another model"):
        simulated(other, rounds=1, run_dir=tmp_path)


def test_clients_that_remember_go_on_where_they_were() -> None:
    """One client, momentum, two rounds of one epoch: what one session does in two epochs."""
    config = CONFIG.replace(optimizer=ct.optimizers.Adam(learning_rate=0.01))
    x, y = samples(1)
    give = lambda context: (x[0], y[0])  # noqa: E731
    alone = ct.TrainSession(MODEL, config)
    alone.fit(x[0], y[0], epochs=2, shuffle=False, verbose=0)
    strategy = FedAvg(min_train_nodes=1, min_evaluate_nodes=1, min_available_nodes=1)
    app = federated.client_app(MODEL, config, give, shuffle=False, remember=["optimizer", "position"])
    run = simulated(app, strategy, 1)
    assert equal(run.arrays, dict(alone.parameters.trainable()))
    forgetful = simulated(federated.client_app(MODEL, config, give, shuffle=False), strategy, 1)
    assert not equal(run.arrays, forgetful.arrays)


def test_settings_are_refused_by_name() -> None:
    with pytest.raises(TypeError, match="did you mean 'epochs'"):
        federated.client_app(MODEL, CONFIG, data(), epoch=2)
    with pytest.raises(ConfigError, match="'optimiser' is none of"):
        federated.client_app(MODEL, CONFIG, data(), remember=["optimiser"])
    with pytest.raises(ConfigError, match="rounds is 0"):
        simulated(rounds=0)
    with pytest.raises(ConfigError, match="nobody knows the model"):
        federated.simulate(ClientApp(), FedAvg(), 2)
    app = federated.client_app(MODEL, CONFIG, data())
    run = simulated(app, FedAvg(), rounds=1, train_config={"local-epochs": 0})
    assert len(run.refused) == CLIENTS and "local-epochs is 0" in run.refused[0].why


def test_a_name_stays_what_it_is_whoever_was_imported_before() -> None:
    """No module has the name of a function of its package."""
    for found in pkgutil.iter_modules(federated.__path__):
        assert found.name not in federated.__all__
