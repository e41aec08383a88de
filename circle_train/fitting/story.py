"""What a checkpoint tells of a fit, believed until something stumbles over it."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext

from circle_train.errors import CheckpointError, refusing


def refused_story() -> AbstractContextManager[None]:
    """Where what is computed with comes from a checkpoint."""
    return refusing(
        CheckpointError, "what the checkpoint tells of its fit", "begin the fit anew, or load another"
    )


def believing(one: object, told: bool) -> AbstractContextManager[None]:
    """Where one of ours was told something, its mistakes are the checkpoint's; those of somebody's own class are its own."""
    is_ours = type(one).__module__.startswith(__name__.partition(".")[0] + ".")
    return refused_story() if told and is_ours else nullcontext()
