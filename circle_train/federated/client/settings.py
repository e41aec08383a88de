"""How a client trains, and what a message or a run may say otherwise."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from circle_train.errors import ConfigError
from circle_train.likeness import likeness
from circle_train.record import record

REMEMBERED = ("optimizer", "statistics", "position")


@record
class How:
    """How a client trains.

    Args:
        epochs: passes over a client's data in a round; "local-epochs" in a message or the run's config comes before it.
        shuffle: take samples in another order in every epoch, a function of seed, client and round alone.
        seed: of everything that is random in the clients.
        remember: what a client keeps from round to round in its context: "optimizer" (moments), "statistics" (its own
            normalisation), "position" (steps for schedules, epochs for the shuffle).
        keep_frozen: what may be kept from round to round of the frozen beginning's results: "auto" (512 MB), False, a size.
        threads: how many to use; None means one for each core.
    """

    epochs: int | None = None
    shuffle: bool = True
    seed: int = 0
    remember: str | Sequence[str] = ()
    keep_frozen: bool | int | str = "auto"
    threads: int | None = None

    def __post_init__(self) -> None:
        asked = (self.remember,) if isinstance(self.remember, str) else tuple(self.remember)
        object.__setattr__(self, "remember", asked)
        for name in asked:
            if name not in REMEMBERED:
                known = ", ".join(REMEMBERED)
                raise ConfigError(f"remember: '{name}' is none of {known}{likeness(name, REMEMBERED)}")
        if self.epochs is not None:
            _count("epochs", self.epochs)


@record
class Asked:
    """What a round asks of a client."""

    epochs: int
    learning_rate: float | None
    proximal_mu: float
    round: int


def asked(config: Mapping[str, Any], run: Mapping[str, Any], epochs: int) -> Asked:
    """The message's word comes before the run's, the run's before the client's own."""
    said = {**run, **config}
    rate = said.get("learning-rate")
    return Asked(
        _count("local-epochs", said.get("local-epochs", epochs)),
        None if rate is None else _number("learning-rate", rate),
        _number("proximal-mu", said.get("proximal-mu", 0.0)),
        _whole("server-round", said.get("server-round", 0)),
    )


def _count(name: str, value: Any) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise ConfigError(f"{name} is {value!r}, expected a whole number from 1")
    return value


def _whole(name: str, value: Any) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise ConfigError(f"{name} is {value!r}, expected a whole number from 0")
    return value


def _number(name: str, value: Any) -> float:
    if not isinstance(value, (int, float)) or isinstance(value, bool) or not 0 <= value < float("inf"):
        raise ConfigError(f"{name} is {value!r}, expected a number from 0")
    return float(value)
