"""A fleet in one process."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from flwr.app import Context, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import ServerApp
from flwr.serverapp.strategy import Strategy

from circle_train.errors import ConfigError
from circle_train.federated.identity import RUN, SERVER, speaking_as_server
from circle_train.federated.local_grid import LocalGrid
from circle_train.federated.server.app import server_app
from circle_train.federated.server.run import Run


def simulate(
    client_app: ClientApp,
    server: Strategy | ServerApp,
    clients: int,
    *,
    run_config: Mapping[str, Any] | None = None,
    node_configs: Sequence[Mapping[str, Any]] = (),
    **settings: Any,
) -> Run | None:
    """Run clients and server, Flower's or ours, in this process: one session for all clients, replies as a stream.

    Args:
        client_app: what `federated.client_app` made, or any other ClientApp.
        server: a strategy, for the clients' own model; or a ServerApp.
        clients: how many there are.
        run_config, node_configs: what apps find in their contexts.
        settings: of a strategy's run, as for `server_app`: rounds, evaluate, run_dir, …

    Returns the run: `history`, `best`, `refused`, `rounds`; None of somebody else's ServerApp.
    """
    app = server if isinstance(server, ServerApp) else _server_for(client_app, server, settings)
    if app is server and settings:
        raise ConfigError(f"simulate: {next(iter(settings))} is a setting of the ServerApp; give it there")
    context = Context(RUN, SERVER, {}, RecordDict(), dict(run_config or {}))
    with speaking_as_server():
        app(LocalGrid(client_app, clients, run_config, node_configs), context)
    made = getattr(app, "circle_train", None)
    return None if made is None else made.run


def _server_for(client_app: ClientApp, strategy: Strategy, settings: Mapping[str, Any]) -> ServerApp:
    learner = getattr(client_app, "circle_train", None)
    if learner is None:
        raise ConfigError(
            "simulate: the client app is not of federated.client_app, so that nobody knows the model; "
            "give a ServerApp in place of the strategy"
        )
    return server_app(learner.model, strategy, learner.config, **settings)
