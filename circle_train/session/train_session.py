"""Sessions: a thin face over compiled programs. No arithmetic here."""

from __future__ import annotations

from typing import Any

from circle_train.compile.program import Mode
from circle_train.fitting.history import History
from circle_train.model import Model, Source, checkpoint_of, load
from circle_train.session import fit as fitting
from circle_train.session import keeping, phases, profiling
from circle_train.session.onert_steps import OnertSteps
from circle_train.session.plan import Plan, make_plan
from circle_train.session.turns import trains, waits
from circle_train.settings.config import TrainConfig


class TrainSession(OnertSteps):
    """Trains a model: `fit` for whole data sets, `train_step` for one batch at a time.

    Args:
        model: a path, bytes, file object or `Model`.
        config: what and how to train; None takes the settings that the file carries (Circle+).
        seed: of the shuffle and of everything else that is random.
        threads: how many to use; None means one for each core.
        backend: "native", "reference", or "auto" for the fastest there is.

    Example:
        >>> import circle_train as ct, numpy as np
        >>> session = ct.TrainSession("tests/data/mlp.circle", ct.TrainConfig(loss="mse", batch_size=4))
        >>> x, y = np.zeros((4, 6), np.float32), np.eye(5, dtype=np.float32)[:4]
        >>> session.train_step(x, y).loss > 0
        True
    """

    def __init__(
        self,
        model: Model | Source,
        config: TrainConfig | None = None,
        *,
        seed: int = 0,
        threads: int | None = None,
        backend: str = "auto",
    ) -> None:
        super().__init__(load(model), config, seed, threads, backend)
        if (saved := checkpoint_of(model)) is not None:
            self.load_checkpoint(saved)

    @trains
    def set_trainable(self, trainable: Any, *, learning_rate: float | None = None) -> None:
        """Begin the next phase: train other weights from here on, at another rate; what was learned stays.

        The optimizer starts without memory of the phase before.
        """
        phases.begin_phase(self, trainable, learning_rate)

    @waits
    def prepare(self) -> None:
        """Build the whole program now instead of at first use."""
        self.programs.executor(Mode.TRAIN, self.config.batch_size)

    @property
    @waits
    def plan(self) -> Plan:
        """What will run: operators, trained parameters, bytes by class, FLOPs."""
        return make_plan(self.programs.whole, self.model, keeping.foreseen(self))

    @trains
    def profile(self, x: Any = None, y: Any = None, *, steps: int = 5) -> profiling.Profile:
        """Time training steps node by node, on this batch or on zeros; what was learned stays as it was."""
        return profiling.profile(self, x, y, steps)

    def fit(self, x: Any, y: Any = None, **options: Any) -> History:
        """Train for `epochs` over the data; see circle_train.session.fit.fit for every option."""
        with self.turns.alone("fit"):
            return fitting.fit(self, x, y, **options)

    def evaluate(self, x: Any, y: Any = None, batch_size: int | None = None) -> dict[str, float]:
        """Mean loss and metrics over the data."""
        return fitting.evaluate(self, x, y, batch_size)

    def predict(self, x: Any, batch_size: int | None = None) -> Any:
        """Outputs for any number of samples: an array, or a list for several outputs."""
        return fitting.predict(self, x, batch_size)
