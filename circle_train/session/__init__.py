"""What users hold in their hands: sessions that train and infer, and what they can tell, keep and write."""

from typing import TYPE_CHECKING

from circle_train.brought import MODULES, brought

if TYPE_CHECKING:
    from circle_train.session import (
        account as account,
        export as export,
        fit as fit,
        keeping as keeping,
        profiling as profiling,
    )
    from circle_train.session.batches import StepResult as StepResult
    from circle_train.session.inference import InferenceSession as InferenceSession
    from circle_train.session.train_session import TrainSession as TrainSession

HOMES = {
    MODULES: ("account", "export", "fit", "keeping", "profiling"),
    "batches": ("StepResult",),
    "inference": ("InferenceSession",),
    "train_session": ("TrainSession",),
}
__getattr__ = brought(__name__, HOMES)
