"""Attention by blocks of rows against numpy in float64, near the length of a block; the same bits by any number of threads."""

from __future__ import annotations

import numpy as np
import pytest
from sized.products import Attention

COLUMNS = np.arange(150)
ROWS = COLUMNS[:, None]
LATER = COLUMNS > ROWS
MASKS = {
    "causal": np.where(LATER, -1e9, 0),
    "causal, of infinities": np.where(LATER, -np.inf, 0),
    "causal behind a padding": np.where(LATER | (COLUMNS < 20) & (ROWS >= 20), -1e9, 0),
    "a window": np.where(np.abs(ROWS - COLUMNS) > 9, -1e9, 0),
    "later rows see less": np.where(ROWS + COLUMNS > 150, -1e9, 0),
    "the first alone": np.where(COLUMNS > 0 * ROWS, -1e9, 0),
    "some rows see all": np.where(ROWS % 7 == 3, -64, np.where(LATER, -1e9, 0)),
    "weak": np.where(LATER, -30.0, 0),
}


@pytest.mark.parametrize(
    "rows, cols", [(1, 1), (23, 40), (24, 197), (47, 16), (48, 65), (49, 300), (197, 197)]
)
def test_forward_and_backward(rows: int, cols: int) -> None:
    found = Attention(rows, cols, 3, 2, 4)
    for kernel, call in (("ATTENTION", found.forward()), ("ATTENTION_GRAD", found.backward())):
        call.agrees(kernel)


@pytest.mark.parametrize("name", MASKS)
def test_what_a_mask_hides(name: str) -> None:
    """Columns that have no part in a block of rows are left out of it, and nothing else."""
    found = Attention(150, 150, 2, 1, 4, np.float32(MASKS[name]))
    for kernel, call in (("ATTENTION", found.forward()), ("ATTENTION_GRAD", found.backward())):
        call.agrees(kernel)


def test_scores_may_be_larger_than_what_a_mask_takes_away() -> None:
    found = Attention(150, 150, 2, 1, 4, np.float32(MASKS["weak"]), 20.0)
    for kernel, call in (("ATTENTION", found.forward()), ("ATTENTION_GRAD", found.backward())):
        call.agrees(kernel, 5e-3)


def test_rows_of_a_thousand_numbers() -> None:
    """Such rows meet in the cache's sets and are copied, which takes memory of its own."""
    found = Attention(50, 70, 32, 1, 2)
    for kernel, call in (("ATTENTION", found.forward()), ("ATTENTION_GRAD", found.backward())):
        call.agrees(kernel)
