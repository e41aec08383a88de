"""Learning rates that change from step to step: `from circle_train.schedules import Cosine`."""

from circle_train.optimizers.schedules import (
    Cosine,
    Exponential,
    Function,
    LinearWarmup,
    OneCycle,
    Schedule,
    Step,
    Trapezoid,
)

__all__ = ["Cosine", "Exponential", "Function", "LinearWarmup", "OneCycle", "Schedule", "Step", "Trapezoid"]


def __dir__() -> list[str]:
    return sorted(__all__)
