"""Weight gradients of images with few channels, whose vectors hold outputs, against direct sums in float64."""

from __future__ import annotations

import pytest
from hypothesis import given, settings, strategies as st
from sized.images import Case
from test_conv_cells import agrees

CASES = {
    "one channel": Case(3, 28, 28, 1, 8, (3, 3)),
    "whole vectors": Case(2, 14, 14, 8, 16, (3, 3)),
    "more than a tile of vectors": Case(1, 9, 9, 3, 37, (3, 3)),
    "runs of several tiles": Case(1, 7, 8, 10, 9, (2, 5)),
    "nothing lies behind the last rows": Case(2, 1, 1, 2, 5, (3, 3)),
    "a single pixel in a row": Case(3, 9, 1, 1, 7, (3, 1)),
    "dilations": Case(2, 12, 13, 3, 7, (3, 2), (1, 2), (2, 3)),
    "strides longer than the window": Case(2, 11, 10, 3, 6, (2, 2), (3, 4), pad="VALID"),
    "a window larger than the image": Case(2, 4, 3, 2, 6, (9, 11)),
    "rows in chunks": Case(1, 90, 70, 3, 12, (3, 3)),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_cases(case: Case) -> None:
    agrees(case)


@settings(max_examples=20, deadline=None, derandomize=True)
@given(
    st.integers(1, 4),
    st.integers(1, 13),
    st.integers(1, 19),
    st.integers(1, 24),
    st.integers(5, 40),
    st.tuples(st.integers(1, 3), st.integers(2, 4)),
    st.tuples(st.integers(1, 2), st.integers(1, 3)),
    st.tuples(st.integers(1, 2), st.integers(1, 2)),
)
def test_random_shapes(
    n: int, h: int, w: int, c: int, o: int, k: tuple[int, int], s: tuple[int, int], d: tuple[int, int]
) -> None:
    agrees(Case(n, h, w, c, o, k, s, d))
