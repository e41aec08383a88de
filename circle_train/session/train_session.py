"""Sessions: a thin face over compiled programs. No arithmetic here."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from typing import Any

from circle_train import report, session
from circle_train.compile.program import Mode
from circle_train.data.dataset import Dataset
from circle_train.fitting.callback import Callback
from circle_train.fitting.history import History
from circle_train.format.atomic import write_text
from circle_train.model import Model, Source, checkpoint_of, load
from circle_train.printable import as_table
from circle_train.session.onert_steps import OnertSteps
from circle_train.session.turns import refuse_copies, trains, waits
from circle_train.settings.config import TrainConfig


class TrainSession(OnertSteps):
    """Trains a model: `fit` for whole data sets, `train_step` for one batch at a time.

    Args:
        model: a path, bytes, file object or `Model`.
        config: what and how to train; None takes the settings that the file carries (Circle+).
        inputs: values of inputs that are no samples (`{"sr": 16000}`), which are asked for no longer.
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
        inputs: Mapping[str, Any] | None = None,
        seed: int = 0,
        threads: int | None = None,
        backend: str = "auto",
    ) -> None:
        super().__init__(load(model, inputs=inputs or {}), config, seed, threads, backend)
        self.history = History()
        """Of the last fit."""
        if (saved := checkpoint_of(model)) is not None:
            self.load_checkpoint(saved)

    @trains
    def set_trainable(self, trainable: Any, *, learning_rate: float | None = None) -> None:
        """Begin the next phase: train other weights from here on, at another rate; what was learned stays.

        The optimizer starts without memory of the phase before.
        """
        self.programs.begin_phase(trainable, learning_rate)

    @waits
    def prepare(self) -> None:
        """Build the whole program now instead of at first use."""
        self.programs.executor(Mode.TRAIN, self.config.batch_size)

    @property
    @waits
    def plan(self) -> report.plan.Plan:
        """What will run: operators, trained parameters, bytes by class, FLOPs."""
        return session.keeping.plan_of(self)

    def report(self, path: str | os.PathLike[str], x: Any = None, y: Any = None) -> None:
        """Write one HTML file that tells of the last fit: curves, settings, plan; with data, what it takes for what."""
        data = None if x is None else session.account.opened(self, (x, y))
        examined = data if isinstance(data, Dataset) else None
        fit = session.account.FinishedFit("Training", self.history, validation=examined)
        write_text(path, report.page.page(session.account.account(self, fit)))

    __reduce__ = refuse_copies

    def _repr_html_(self) -> str:
        return as_table(str(self.plan))

    @trains
    def profile(self, x: Any = None, y: Any = None, *, steps: int = 5) -> session.profiling.Profile:
        """Time training steps node by node, on this batch or on zeros; what was learned stays as it was."""
        return session.profiling.profile(self, x, y, steps)

    def fit(  # noqa: PLR0913 -- Keras's arguments
        self,
        x: Any,
        y: Any = None,
        *,
        epochs: int | None = None,
        validation_split: float = 0.0,
        validation_data: Any = None,
        shuffle: bool = True,
        callbacks: Iterable[Callback] | Callback = (),
        verbose: int | str = "auto",
        keep_frozen: bool | int | str = "auto",
        **unknown: Any,
    ) -> History:
        """Train over whole data sets.

        Args:
            x: arrays, a file, a folder of class-named folders of pictures, or batches of (x, y).
            y: labels, where x does not bring them along.
            epochs: passes over the data (default: the config's, or 1).
            validation_split: the fraction that validates: of arrays their end, of a folder as many of each class.
            validation_data: other data that validate, as a pair (x, y).
            shuffle: take samples in another order every epoch.
            callbacks: who is told of epochs and batches (`ct.callbacks`).
            verbose: "auto", 0 for silence, 1 for a bar, 2 for a line an epoch.
            keep_frozen: what may be kept of the frozen beginning's results: "auto", False, True, or a size like "2GB".

        A session that took over a checkpoint from the middle of a fit goes on from there: give the same data, epochs
        and callbacks, which then know what they knew. The last, smaller batch is trained with its true weight.
        """
        if unknown:
            session.fit.refuse_unknown(next(iter(unknown)))
        with self.turns.alone("fit"):
            self.history = session.fit.fit(
                self, x, y, epochs=epochs, validation_split=validation_split, validation_data=validation_data,
                shuffle=shuffle, callbacks=callbacks, verbose=verbose, keep_frozen=keep_frozen,
            )  # fmt: skip
            return self.history

    def evaluate(self, x: Any, y: Any = None, batch_size: int | None = None) -> dict[str, float]:
        """Mean loss and metrics over the data."""
        return session.fit.evaluate(self, x, y, batch_size)

    def predict(self, x: Any, batch_size: int | None = None) -> Any:
        """Outputs for any number of samples: an array, or a list for several outputs."""
        return session.fit.predict(self, x, batch_size)
