"""From labelled samples to a trained model that says what it is: the whole course in one call."""

from circle_train.finetuning.account import Result
from circle_train.finetuning.answers import Answer, answers
from circle_train.finetuning.choosing import Choice, choose
from circle_train.finetuning.finetune import finetune

__all__ = ["Answer", "Choice", "Result", "answers", "choose", "finetune"]
