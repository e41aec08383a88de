"""The enumerations' own arithmetic, against numbers written down by hand."""

from __future__ import annotations

import numpy as np
import pytest

from circle_train.ops.attributes import Activation, Padding

X = np.array([-9.0, -1.5, -0.5, 0.0, 0.5, 1.5, 5.5, 7.0])


@pytest.mark.parametrize(
    ("activation", "expected", "passes"),
    [
        (Activation.NONE, X, [1, 1, 1, 1, 1, 1, 1, 1]),
        (Activation.RELU, [0, 0, 0, 0, 0.5, 1.5, 5.5, 7], [0, 0, 0, 0, 1, 1, 1, 1]),
        (Activation.RELU6, [0, 0, 0, 0, 0.5, 1.5, 5.5, 6], [0, 0, 0, 0, 1, 1, 1, 0]),
        (Activation.RELU_N1_TO_1, [-1, -1, -0.5, 0, 0.5, 1, 1, 1], [0, 0, 1, 1, 1, 0, 0, 0]),
        (Activation.SIGN_BIT, [1, 1, 1, 0, 0, 0, 0, 0], [0] * 8),
    ],
)
def test_fused_activations(activation: Activation, expected: list[float], passes: list[int]) -> None:
    y = activation.apply(X)
    np.testing.assert_array_equal(y, expected)
    np.testing.assert_array_equal(activation.gradient(np.full(8, 3.0), y), 3.0 * np.array(passes))


@pytest.mark.parametrize(
    ("padding", "size", "window", "stride", "positions", "amounts"),
    [
        (Padding.SAME, 224, 3, 2, 112, (0, 1)),
        (Padding.SAME, 5, 3, 1, 5, (1, 1)),
        (Padding.SAME, 7, 2, 3, 3, (0, 1)),
        (Padding.SAME, 4, 1, 2, 2, (0, 0)),
        (Padding.VALID, 5, 3, 1, 3, (0, 0)),
        (Padding.VALID, 6, 3, 2, 2, (0, 0)),
        (Padding.VALID, 2, 3, 1, 0, (0, 0)),
    ],
)
def test_padding_is_tensorflows(
    padding: Padding, size: int, window: int, stride: int, positions: int, amounts: tuple[int, int]
) -> None:  # fmt: skip
    assert padding.output_size(size, window, stride) == positions
    assert padding.amounts(size, window, stride) == amounts
