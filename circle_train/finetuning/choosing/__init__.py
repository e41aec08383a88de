"""What of a model is worth training on these data: proposed by Fisher's information, decided by trials, within a budget."""

from circle_train.finetuning.choosing.choice import Choice, Row
from circle_train.finetuning.choosing.choose import choose

__all__ = ["Choice", "Row", "choose"]
