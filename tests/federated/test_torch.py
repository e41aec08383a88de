"""Flower with PyTorch clients is the judge of Flower with ours."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import circle_train as ct

pytest.importorskip("flwr")
torch = pytest.importorskip("torch")

from fleets import CLIENTS, CONFIG, MODEL, data, samples
from flwr.app import ArrayRecord, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg, FedProx

from circle_train import federated


def forward(weights: dict[str, Any], x: Any) -> Any:
    """tests/data/mlp.circle in PyTorch."""
    names = list(weights)
    hidden = torch.relu(x @ weights[names[0]].T + weights[names[1]])
    return torch.softmax(hidden @ weights[names[2]].T + weights[names[3]], 1)


def torch_clients(x: Any, y: Any) -> ClientApp:
    """What anybody writes who uses Flower with PyTorch."""
    app = ClientApp()

    @app.train()
    def train(message: Message, context: Any) -> Message:
        start = {n: torch.from_numpy(a.numpy().copy()) for n, a in message.content["arrays"].items()}
        weights = {n: w.clone().requires_grad_() for n, w in start.items()}
        mu = message.content["config"].get("proximal-mu", 0.0)
        optimizer = torch.optim.SGD(weights.values(), lr=0.05)
        place = context.node_config["partition-id"]
        mine, labels = (torch.from_numpy(a[place, : 10 - place]) for a in (x, y))
        for begin in range(0, len(mine), 4):
            optimizer.zero_grad()
            loss = ((forward(weights, mine[begin : begin + 4]) - labels[begin : begin + 4]) ** 2).mean()
            loss = loss + mu / 2 * sum(((w - start[n]) ** 2).sum() for n, w in weights.items())
            loss.backward()
            optimizer.step()
        arrays = ArrayRecord({n: w.detach() for n, w in weights.items()})
        metrics = MetricRecord({"num-examples": len(mine)})
        return Message(RecordDict({"arrays": arrays, "metrics": metrics}), reply_to=message)

    return app


@pytest.mark.parametrize("strategy", [FedAvg, lambda **a: FedProx(proximal_mu=0.5, **a)])
def test_three_rounds_are_those_of_flower_and_pytorch(strategy: Any) -> None:
    x, y = samples()
    theirs: dict[str, Any] = {}
    server = ServerApp()

    @server.main()
    def main(grid: Grid, context: Any) -> None:
        start = federated.arrays(ct.TrainSession(MODEL, CONFIG))
        result = strategy(fraction_evaluate=0.0).start(grid, start, num_rounds=3)
        theirs.update({name: array.numpy() for name, array in result.arrays.items()})

    federated.simulate(torch_clients(x, y), server, CLIENTS)
    ours = federated.simulate(
        federated.client_app(MODEL, CONFIG, data(x, y), shuffle=False),
        strategy(fraction_evaluate=0.0),
        CLIENTS,
        rounds=3,
    )
    start = ct.TrainSession(MODEL, CONFIG).parameters
    for name, array in ours.arrays.items():
        np.testing.assert_allclose(array, theirs[name], rtol=0, atol=1e-5)
        assert np.abs(array - start[name]).max() > 1e-3
