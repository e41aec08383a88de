"""A share of what tools/dev/comparing/open_sizes.py compares: random graphs with open sizes, at three sizes each."""

from __future__ import annotations

import pytest

pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")
from open_graphs import findings


@pytest.mark.parametrize("first", range(0, 40, 10))
def test_random_graphs_are_right_at_every_size(first: int) -> None:
    made = [findings(seed) for seed in range(first, first + 10)]
    assert [one for found in made for one in found or ()] == []
    assert sum(found is not None for found in made) > 5
