"""An ONNX network with a normalisation: statistics, packages, layouts, and what a frozen beginning gives."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import circle_train as ct

pytest.importorskip("flwr")
pytest.importorskip("onnx")

from flwr.serverapp.strategy import FedAdam, FedAvg

from circle_train import federated

MODEL = Path(__file__).resolve().parents[1] / "data/ort/images.onnx"
STATISTICS = ["bn.mean", "bn.var"]
CONFIG = ct.TrainConfig(
    loss=ct.losses.SparseCategoricalCrossentropy(from_logits=True),
    optimizer=ct.optimizers.SGD(0.05),
    batch_size=4,
    dropout=False,
)
CLIENTS = 3


def samples() -> tuple[Any, Any]:
    session = ct.TrainSession(MODEL, CONFIG)
    shape = session.model.inputs[0].shape[1:]
    random = np.random.default_rng(1)
    x = random.normal(size=(CLIENTS, 8, *shape)).astype(np.float32)
    return x, random.integers(0, session.model.outputs[0].shape[-1], (CLIENTS, 8))


def data(context: Any) -> Any:
    x, y = samples()
    place = context.node_config["partition-id"]
    return x[place], y[place]


def test_statistics_are_a_second_group_that_the_server_averages() -> None:
    config = CONFIG.replace(batch_norm="train")
    record = federated.arrays(ct.TrainSession(MODEL, config))
    assert list(record)[-2:] == STATISTICS
    assert not set(STATISTICS) & set(federated.arrays(ct.TrainSession(MODEL, CONFIG)))
    clients = federated.client_app(MODEL, config, data, shuffle=False)
    run = federated.simulate(clients, FedAdam(eta=0.01), CLIENTS, rounds=1)
    x, y = samples()
    seen = []
    for place in range(CLIENTS):
        alone = ct.TrainSession(MODEL, config)
        alone.fit(x[place], y[place], shuffle=False, verbose=0)
        seen.append({name: np.array(alone.parameters[name]) for name in STATISTICS})
    for name in STATISTICS:
        mean = np.mean([one[name] for one in seen], axis=0)
        np.testing.assert_allclose(run.arrays[name], mean, rtol=0, atol=1e-6)


def test_a_client_may_keep_its_own_statistics() -> None:
    config = CONFIG.replace(batch_norm="train")
    runs = [
        federated.simulate(
            federated.client_app(MODEL, config, data, remember=remember, shuffle=False),
            FedAvg(),
            CLIENTS,
            rounds=3,
        )
        for remember in ((), "statistics")
    ]
    losses = [run.history["clients_loss"] for run in runs]
    assert (
        losses[0][0] != losses[1][0]
    )  # evaluation after the first round: the fleet's statistics, or one's own


def test_a_package_without_weights_learns_from_the_first_round_on(tmp_path: Path) -> None:
    config = CONFIG.replace(batch_norm="train")
    package = ct.make_artifacts(MODEL, tmp_path / "package", config, nominal=True)
    server = federated.server_app(
        MODEL, lambda context: FedAvg(), config, rounds=2, export=tmp_path / "out.onnx"
    )
    run = federated.simulate(federated.client_app(package, None, data), server, CLIENTS)
    assert not run.refused and (tmp_path / "out.onnx").exists()
    whole = federated.simulate(federated.client_app(MODEL, config, data), FedAvg(), CLIENTS, rounds=2)
    for name, array in whole.arrays.items():
        np.testing.assert_array_equal(array, run.arrays[name])


class Counted:
    """Samples made when they are asked for, and how often that was."""

    is_lasting = True

    def __init__(self, array: Any, asked: list[int]) -> None:
        self.array, self.asked = array, asked
        self.shape, self.ndim, self.dtype = array.shape, array.ndim, array.dtype

    def __len__(self) -> int:
        return len(self.array)

    def __getitem__(self, places: Any) -> Any:
        made = self.array[places]
        self.asked.append(len(made))
        return made


@pytest.mark.parametrize("lazy", [False, True])
def test_what_a_frozen_beginning_gives_is_kept_between_rounds(lazy: bool) -> None:
    config = CONFIG.replace(trainable=["fc.*"])
    x, y = samples()
    asked: list[int] = []

    def of(context: Any) -> Any:
        place = context.node_config["partition-id"]
        return (Counted(x[place], asked) if lazy else x[place].copy()), y[place]

    runs = []
    for keep in ("auto", False):
        app = federated.client_app(MODEL, config, of, keep_frozen=keep)
        runs.append(federated.simulate(app, FedAvg(fraction_evaluate=0.0), CLIENTS, rounds=3))
        assert sum(asked) == (CLIENTS * 8 * (1 if keep else 4) if lazy else 0)
    for name, array in runs[0].arrays.items():
        np.testing.assert_array_equal(array, runs[1].arrays[name])


def test_other_samples_are_seen_to_be_others() -> None:
    """Kept results are of samples, not of clients."""
    config = CONFIG.replace(trainable=["fc.*"])
    x, y = samples()

    def course(keep: Any) -> Any:
        turns: dict[int, int] = {}

        def of(context: Any) -> Any:
            place = context.node_config["partition-id"]
            turns[place] = turns.get(place, -1) + 1
            return x[place] + np.float32(turns[place] // 2), y[place]

        app = federated.client_app(MODEL, config, of, keep_frozen=keep)
        return federated.simulate(app, FedAvg(fraction_evaluate=0.0), CLIENTS, rounds=3)

    kept, fresh = course("auto"), course(False)
    for name, array in kept.arrays.items():
        np.testing.assert_array_equal(array, fresh.arrays[name])
