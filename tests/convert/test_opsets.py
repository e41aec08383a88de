"""Operators that another edition of the standard takes in another way, on both sides of the change."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from test_convert import array, compare, model, node

TALL = [2, 6, 3, 4]
GROUPED = node("GroupNormalization", "x s b", "y", num_groups=2)


def whole(*numbers: int) -> dict[str, Any]:
    return {"k": np.array(numbers, np.int64)}


CHANGED: dict[str, tuple[int, Any, list[int], dict[str, Any]]] = {
    "softmax-13": (13, node("Softmax", "x", "y"), TALL, {}),
    "sum-12": (12, node("ReduceSum", "x", "y", axes=[1], keepdims=0), [2, 3, 4], {}),
    "sum-13": (13, node("ReduceSum", "x k", "y", keepdims=0), [2, 3, 4], whole(1)),
    "mean-17": (17, node("ReduceMean", "x", "y", axes=[2, 3]), [2, 6, 1, 1], {}),
    "mean-18": (18, node("ReduceMean", "x k", "y"), [2, 6, 1, 1], whole(2, 3)),
    "unsqueeze-12": (12, node("Unsqueeze", "x", "y", axes=[0, 3]), [1, 2, 6, 1, 3, 4], {}),
    "unsqueeze-13": (13, node("Unsqueeze", "x k", "y"), [1, 2, 6, 1, 3, 4], whole(0, 3)),
    "clip-10": (10, node("Clip", "x", "y", min=-0.5, max=0.25), TALL, {}),
    "clip-11": (11, node("Clip", "x s", "y"), TALL, {"s": np.float32(-0.5)}),
    "pad-10": (10, node("Pad", "x", "y", pads=[0, 0, 1, 0, 0, 0, 0, 2]), [2, 6, 4, 6], {}),
    "pad-11": (11, node("Pad", "x k", "y"), [2, 6, 4, 6], whole(0, 0, 1, 0, 0, 0, 0, 2)),
    "groups-21": (21, GROUPED, TALL, {"s": array(6), "b": array(6) + 1}),
}


@pytest.mark.parametrize("case", CHANGED)
def test_each_edition_is_taken_as_it_says(case: str) -> None:
    opset, made, shape, constants = CHANGED[case]
    compare(model([made], {"x": TALL}, {"y": shape}, opset=opset, **constants), {"x": array(*TALL)})
