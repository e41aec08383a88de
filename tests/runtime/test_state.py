"""The memory that steps leave to each other."""

from __future__ import annotations

from typing import Any

import numpy as np

from circle_train.ir import DType, StateKey, Tensor, TensorType
from circle_train.ir.tensor_type import Array
from circle_train.runtime.state import State

MANY = 50


class Unlisted(dict[StateKey, Array]):
    """Of which nobody needs to know all that it holds."""

    def keys(self) -> Any:
        raise AssertionError("all states were gone through for one of them")

    __iter__ = keys


def test_a_state_is_found_without_going_through_all_others() -> None:
    """Else preparing takes time by the square of how many weights there are."""
    state = State([], 0.1)
    state.arrays = Unlisted()
    tensors = [
        Tensor(f"m{i}", TensorType(DType.FLOAT32, (2, i)), state=StateKey("m", f"w{i}")) for i in range(MANY)
    ]
    state.provide(tensors[: MANY // 2])
    found = [state.array(tensor) for tensor in tensors]
    assert [array.shape for array in found] == [tensor.shape for tensor in tensors]
    assert all(state.array(tensor) is array for tensor, array in zip(tensors, found, strict=True))
    assert not np.concatenate([array.reshape(-1) for array in found]).any()
