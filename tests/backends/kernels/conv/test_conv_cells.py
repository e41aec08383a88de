"""Weight gradients summed cell by cell of the window, against direct sums in float64."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from native import struct
from sized.call import Call, added, rand
from sized.images import Case, Convolution

from circle_train.backends.native.engine import abi

SCALARS = np.array([1e-3, 0.9, 0.999, 0.1, 0, 1, 0.1, 0.001] + [0] * 8, np.float32)


def agrees(case: Case) -> None:
    """Stored, and added to what is there without a bias."""
    t = Convolution(case)
    t.grad_w().agrees("CONV_GRAD_W")
    before = rand(*t.w.shape, seed=6)
    added(t.of_both(accumulate=1), before, w=t.dw + before).agrees("CONV_GRAD_W")


CASES = {
    "a row of tiles": Case(3, 14, 14, 32, 64, (3, 3)),
    "one vector, one output": Case(2, 9, 7, 16, 1, (3, 3)),
    "outputs that are no whole tiles": Case(2, 11, 9, 48, 37, (3, 3)),
    "strides and dilations": Case(2, 21, 18, 16, 20, (3, 2), (2, 1), (1, 3)),
    "a window larger than the image": Case(5, 5, 7, 16, 13, (9, 11)),
    "cells that are padding everywhere": Case(2, 8, 8, 16, 13, (3, 3), (1, 1), (9, 9)),
    "no padding": Case(2, 13, 12, 32, 24, (5, 5), pad="VALID"),
    "strides without a window": Case(4, 16, 15, 64, 40, (1, 1), (2, 2)),
    "blocks of outputs, in parts": Case(3, 9, 10, 112, 130, (3, 3)),
    "blocks of outputs, in one part": Case(2, 8, 9, 208, 230, (3, 3)),
    "rows in chunks": Case(2, 40, 37, 64, 50, (3, 3)),
    "a row that is a chunk": Case(1, 5, 300, 64, 50, (3, 3)),
    "pixels in the same cache sets": Case(1, 8, 8, 512, 12, (3, 3)),
    "groups": Case(3, 14, 14, 64, 96, (3, 3), groups=4),
    "groups of no whole tiles": Case(2, 21, 18, 96, 39, (3, 2), (2, 1), (1, 3), groups=3),
    "groups in blocks of outputs": Case(2, 9, 10, 448, 130, (3, 3), groups=2),
    "many groups": Case(1, 8, 8, 240, 45, (1, 1), groups=15),
    "few pixels": Case(6, 4, 5, 32, 24, (3, 3)),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_cases(case: Case) -> None:
    agrees(case)


SIZES = st.integers(3, 19)


@settings(max_examples=20, deadline=None, derandomize=True)
@given(
    st.integers(1, 5),
    SIZES,
    SIZES,
    st.sampled_from([8, 16, 32, 48, 64, 80]),
    st.integers(1, 75),
    st.tuples(st.integers(1, 3), st.integers(2, 3)),
    st.tuples(st.integers(1, 2), st.integers(1, 2)),
    st.sampled_from(["SAME", "VALID"]),
    st.integers(1, 3),
)
def test_random_shapes(
    n: int, h: int, w: int, c: int, o: int, k: tuple[int, int], s: tuple[int, int], pad: str, groups: int
) -> None:
    agrees(Case(n, h, w, c * groups, o * groups, k, s, pad=pad, groups=groups))


@pytest.mark.parametrize("case", [CASES["a row of tiles"], CASES["blocks of outputs, in one part"]])
def test_adam_moves_what_the_gradient_says(case: Case) -> None:
    """One step from nothing, in each of the states."""
    t = Convolution(case)

    def make(out: dict[str, np.ndarray]) -> Any:
        updates = {
            name: struct(
                "ct_update", kind=abi.UpdateKind.ADAM, w=out[name], m=out[name + "m"], v=out[name + "v"],
                scalars=SCALARS,
            )
            for name in ("w", "b")
        }  # fmt: skip
        sizes = {"shape": t.image.shape, "has_w": 1, "has_b": 1}
        return struct("ct_conv_grad_w_args", dy=t.dy, x=t.x, **sizes, **updates)

    wants, root = {}, float(np.sqrt(0.001))
    for name, grad in {"w": t.dw, "b": t.dy.sum((0, 1, 2), dtype=np.float64)}.items():
        wants[name] = -1e-3 * 0.1 * grad / (root * np.abs(grad) + 0.1)
        wants |= {name + "m": 0.1 * grad, name + "v": 0.001 * grad**2}
    outputs = {name: np.zeros(want.shape, np.float32) for name, want in wants.items()}
    Call(make, outputs, wants).agrees("CONV_GRAD_W")
