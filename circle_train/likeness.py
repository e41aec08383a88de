"""What somebody may have meant by a name that nobody knows."""

from __future__ import annotations

from collections.abc import Iterable

ELSEWHERE = {
    "lr": "learning_rate",
    "bs": "batch_size",
    "num_epochs": "epochs",
    "n_epochs": "epochs",
    "betas": "beta_1",
    "beta1": "beta_1",
    "beta2": "beta_2",
    "eps": "epsilon",
    "weight_decay_rate": "weight_decay",
    "criterion": "loss",
    "num_of_trainable_ops": "trainable",
    "val_split": "validation_split",
}
"""Names of other libraries, and ours."""


def likeness(name: str, known: Iterable[str]) -> str:
    """ "; did you mean 'learning_rate'?", or nothing."""
    names = list(known)
    meant = ELSEWHERE.get(name.replace("-", "_"))
    if meant not in names:
        import difflib  # takes 4 ms, which only a mistake is worth

        meant = next(iter(difflib.get_close_matches(name, names, 1)), None)
    return f"; did you mean '{meant}'?" if meant else ""
