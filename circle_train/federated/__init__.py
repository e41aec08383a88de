"""Training by a fleet, on Flower: `from circle_train import federated`.

Flower (`pip install 'circle-train[federated]'`) brings strategies, deployment, privacy; here are the client that needs no code,
a server that is resumed and exports, and a simulation of thousands of clients in one process. Nothing imports flwr before
one of these names is asked for.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

from circle_train.errors import ConfigError

_HOMES = {
    "arrays": "records",
    "flat": "records",
    "from_flat": "records",
    "load": "records",
    "client_app": "client.app",
    "numpy_client": "client.numpy_client",
    "server_app": "server.app",
    "simulate": "simulation",
    "LocalGrid": "local_grid",
    "StreamingFedAvg": "streaming",
}
"""Public names, and the modules that define them."""

__all__ = [  # noqa: PLE0604 -- names of what __getattr__ gives
    *_HOMES
]


def __getattr__(name: str) -> Any:
    """A public name, once it is asked for: its module imports flwr."""
    if name not in _HOMES:
        raise AttributeError(f"module 'circle_train.federated' has no attribute '{name}'")
    try:
        found = getattr(import_module(f"circle_train.federated.{_HOMES[name]}"), name)
    except ModuleNotFoundError as error:
        if (error.name or "").split(".")[0] != "flwr":
            raise
        raise ConfigError(
            f"federated.{name}: Flower is not installed; pip install 'circle-train[federated]', with Python 3.11 or later"
        ) from None
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    """What completion offers."""
    return sorted(__all__)
