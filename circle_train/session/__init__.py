"""What users hold in their hands: sessions that train and infer, and what they can tell, keep and write."""

from circle_train.session.batches import StepResult
from circle_train.session.inference import InferenceSession
from circle_train.session.train_session import TrainSession

__all__ = ["InferenceSession", "StepResult", "TrainSession"]
