"""The second phase: which layers learn with the head, how long and how slowly, so that they do not forget what they know."""

from __future__ import annotations

from math import ceil, cos, pi

from circle_train.fitting.callback import Callback
from circle_train.model import Model
from circle_train.record import record
from circle_train.session.foresight import trained_at

RATE, SLOWER = 5e-5, 10
"""Unless a rate was given for the head; then a tenth of that. A tenth of the usual makes layers of trained networks forget."""


def all_layers(model: Model) -> tuple[str, int] | None:
    """Every layer, counted in operators as `trainable` is; None where there is none before the head.

    The first ones too: samples that look otherwise than those of before (small, blurred, in another light) are met there.
    """
    layers = sorted(trained_at(model))
    return ("last", len(model.operators) - layers[0]) if len(layers) > 1 else None


@record
class Length:
    """How long a phase takes: about so many steps, be the samples few or many."""

    steps: int
    fewest: int
    most: int

    def epochs(self, samples: int, batch_size: int) -> int:
        """How often they are shown."""
        return min(max(ceil(self.steps * batch_size / samples), self.fewest), self.most)


DEEPER_LENGTH = Length(steps=600, fewest=3, most=20)


class Falling(Callback):
    """Half the rate in the first epoch, in which the optimizer learns how long gradients are; then along a cosine to nothing.

    A function of the epoch alone, so that a resumed fit has the same; after the fit the session has the whole rate again.
    """

    def __init__(self, rate: float) -> None:
        self.rate = rate

    def factor(self, epoch: int) -> float:
        """The share of the rate that an epoch has."""
        rise = 0.5 if epoch == 0 and self.epochs > 1 else 1.0
        return rise * 0.5 * (1 + cos(pi * epoch / max(self.epochs, 1)))

    def on_epoch_begin(self, epoch: int) -> None:
        self.session.learning_rate = self.rate * self.factor(epoch)

    def on_train_end(self) -> None:
        self.session.learning_rate = self.rate
