"""What notebooks show of our objects: whole, and with nothing of a file's names taken for markup."""

from __future__ import annotations

from pathlib import Path

import numpy as np

import circle_train as ct
from circle_train.printable import as_table

MODEL = Path(__file__).parents[1] / "data" / "mlp.circle"


def test_plan_model_session_and_history_show_themselves() -> None:
    session = ct.TrainSession(MODEL, ct.TrainConfig(loss="mse", batch_size=4), backend="reference")
    history = session.fit(np.ones((4, 6), np.float32), np.eye(4, 5, dtype=np.float32), epochs=1, verbose=0)
    assert session._repr_html_() == session.plan._repr_html_() == as_table(str(session.plan))
    assert "operators: x (1, 6)" in session.model._repr_html_()
    assert "&lt;History of 1 epochs: loss " in history._repr_html_()


def test_names_are_no_markup() -> None:
    assert as_table("<script>") == "<pre>&lt;script&gt;</pre>"
