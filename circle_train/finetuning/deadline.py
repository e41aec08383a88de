"""The end of a phase when its time is over."""

from __future__ import annotations

import logging
import time

from circle_train.fitting.callback import Callback, Logs

LOG = logging.getLogger(__name__)


class Deadline(Callback):
    """Ends a fit before the epoch that would be over only after `end` on the processor's clock."""

    def __init__(self, end: float) -> None:
        self.end = end
        self.last = 0.0

    def on_train_begin(self) -> None:
        self.last = time.process_time()

    def on_epoch_end(self, epoch: int, logs: Logs) -> None:
        now = time.process_time()
        took, self.last = now - self.last, now
        if now + took > self.end and epoch + 1 < self.epochs:
            LOG.info("the budget of time ends this phase after epoch %d of %d", epoch + 1, self.epochs)
            self.session.stop_training = True
