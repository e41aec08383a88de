"""What a run leaves behind for people to look at."""

from circle_train.report.run_folder import RunFolder

__all__ = ["RunFolder"]
