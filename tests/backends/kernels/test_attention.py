"""Attention by blocks of rows against numpy in float64, near the length of a block; the same bits by any number of threads."""

from __future__ import annotations

import pytest
from sized.products import Attention


@pytest.mark.parametrize(
    "rows, cols", [(1, 1), (23, 40), (24, 197), (47, 16), (48, 65), (49, 300), (197, 197)]
)
def test_forward_and_backward(rows: int, cols: int) -> None:
    found = Attention(rows, cols, 3, 2, 4)
    for kernel, call in (("ATTENTION", found.forward()), ("ATTENTION_GRAD", found.backward())):
        call.agrees(kernel)
