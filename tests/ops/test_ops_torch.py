"""Outputs and gradients against PyTorch in float64, over the operators' own examples."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import pytest
from single_operator import computed
from test_ops_gradient import gradient, projections

from circle_train.ops import REGISTRY, Example
from circle_train.ops.attributes import Activation, Padding

torch = pytest.importorskip("torch", reason="PyTorch is the referee here")

F = torch.nn.functional

Referee = Callable[..., Any]
"""From an op and torch inputs to the output before the fused activation; None: torch has no such op."""


def first(x: Any) -> Any:
    """Channels from last to second place."""
    return torch.movedim(x, -1, 1)


def last(x: Any) -> Any:
    return torch.movedim(x, 1, -1)


def borders(
    op: Any, sizes: Sequence[int], kernel: Sequence[int], dilations: Sequence[int]
) -> list[tuple[int, int]]:
    """TensorFlow's padding as its documentation has it."""
    if op.padding is Padding.VALID:
        return [(0, 0)] * len(sizes)
    pairs = []
    for size, cells, stride, dilation in zip(sizes, kernel, op.strides, dilations, strict=True):
        extent = (cells - 1) * dilation + 1
        total = max(extent - (stride if size % stride == 0 else size % stride), 0)
        pairs.append((total // 2, total - total // 2))
    return pairs


def padded(x: Any, pairs: Sequence[tuple[int, int]], value: float = 0.0) -> Any:
    flat = [amount for pair in reversed(pairs) for amount in pair]
    return F.pad(x, flat, value=value)


def convolution(op: Any, x: Any, kernel: Any, b: Any, groups: int) -> Any:
    convolve = {2: F.conv2d, 3: F.conv3d}[x.ndim - 2]
    pairs = borders(op, x.shape[1:-1], kernel.shape[2:], op.dilations)
    result = convolve(padded(first(x), pairs), kernel, b, op.strides, 0, op.dilations, groups)
    return last(result)


def transposed(op: Any, shape: Any, kernel: Any, x: Any, b: Any, dilations: Sequence[int]) -> Any:
    convolve = {2: F.conv_transpose2d, 3: F.conv_transpose3d}[x.ndim - 2]
    spatial = [int(size) for size in shape[1:-1]]
    whole = convolve(first(x), kernel, None, op.strides, 0, dilation=tuple(dilations))
    for axis, (size, (before, _)) in enumerate(
        zip(spatial, borders(op, spatial, kernel.shape[2:], dilations), strict=True), start=2
    ):
        missing = max(before + size - whole.shape[axis], 0)
        grown = [0, 0] * (whole.ndim - axis - 1) + [0, missing]
        whole = F.pad(whole, grown).narrow(axis, before, size)
    return last(whole) if b is None else last(whole) + b


def conv_2d(op: Any, x: Any, w: Any, b: Any = None) -> Any:
    return convolution(op, x, first(w), b, x.shape[3] // w.shape[3])


def depthwise(op: Any, x: Any, w: Any, b: Any = None) -> Any:
    return convolution(op, x, w.permute(3, 0, 1, 2), b, x.shape[3])


def conv_3d(op: Any, x: Any, w: Any, b: Any = None) -> Any:
    return convolution(op, x, w.permute(4, 3, 0, 1, 2), b, 1)


def transpose_conv(op: Any, shape: Any, w: Any, x: Any, b: Any = None) -> Any:
    return transposed(op, shape, w.permute(3, 0, 1, 2), x, b, (1, 1))


def conv_3d_transpose(op: Any, shape: Any, w: Any, x: Any, b: Any = None) -> Any:
    return transposed(op, shape, w.permute(4, 3, 0, 1, 2), x, b, op.dilations)


def max_pool(op: Any, x: Any) -> Any:
    whole = padded(first(x), borders(op, x.shape[1:3], op.size, (1, 1)), -float("inf"))
    return last(F.max_pool2d(whole, op.size, op.strides))


def average_pool(op: Any, x: Any) -> Any:
    pairs = borders(op, x.shape[1:3], op.size, (1, 1))
    total, share = (
        F.avg_pool2d(padded(values, pairs), op.size, op.strides)
        for values in (first(x), torch.ones_like(first(x)))
    )
    return last(total / share)


def l2_pool(op: Any, x: Any) -> Any:
    return torch.sqrt(average_pool(op, x * x))


def fully_connected(op: Any, x: Any, w: Any, b: Any = None) -> Any:
    return F.linear(x if op.keep_num_dims else x.reshape(-1, w.shape[1]), w, b)


def batch_matmul(op: Any, x: Any, w: Any) -> Any:
    return (x.mT if op.adjoint_lhs else x) @ (w.mT if op.adjoint_rhs else w)


def l2_normalization(op: Any, x: Any) -> Any:
    return F.normalize(x, dim=-1, eps=1e-6)


def response(op: Any, x: Any) -> Any:
    size = 2 * op.radius + 1
    return last(F.local_response_norm(first(x), size, op.alpha * size, op.beta, op.bias))


def instance_norm(op: Any, x: Any, gamma: Any, beta: Any) -> Any:
    return last(F.instance_norm(first(x), eps=op.epsilon)) * gamma + beta


def rms_norm(op: Any, x: Any, gamma: Any) -> Any:
    return F.rms_norm(x, x.shape[-1:], eps=op.epsilon) * gamma


def bilinear(op: Any, x: Any, size: Any) -> Any:
    if not (op.align_corners or op.half_pixel_centers):
        return None
    return last(
        F.interpolate(first(x), tuple(size.tolist()), mode="bilinear", align_corners=op.align_corners)
    )


def nearest(op: Any, x: Any, size: Any) -> Any:
    if op.align_corners:
        return None
    mode = "nearest-exact" if op.half_pixel_centers else "nearest"
    return last(F.interpolate(first(x), tuple(size.tolist()), mode=mode))


def softmax(op: Any, x: Any) -> Any:
    return F.softmax(op.beta * x, dim=-1)


def log_softmax(op: Any, x: Any) -> Any:
    return F.log_softmax(x, dim=-1)


REFEREES: dict[str, Referee] = {
    "CONV_2D": conv_2d,
    "DEPTHWISE_CONV_2D": depthwise,
    "CONV_3D": conv_3d,
    "TRANSPOSE_CONV": transpose_conv,
    "CONV_3D_TRANSPOSE": conv_3d_transpose,
    "MAX_POOL_2D": max_pool,
    "AVERAGE_POOL_2D": average_pool,
    "L2_POOL_2D": l2_pool,
    "FULLY_CONNECTED": fully_connected,
    "BATCH_MATMUL": batch_matmul,
    "L2_NORMALIZATION": l2_normalization,
    "LOCAL_RESPONSE_NORMALIZATION": response,
    "INSTANCE_NORM": instance_norm,
    "RMS_NORM": rms_norm,
    "RESIZE_BILINEAR": bilinear,
    "RESIZE_NEAREST_NEIGHBOR": nearest,
    "SOFTMAX": softmax,
    "LOG_SOFTMAX": log_softmax,
}

ACTIVATIONS: dict[Activation, Referee] = {
    Activation.NONE: lambda y: y,
    Activation.RELU: torch.relu,
    Activation.RELU6: F.relu6,
    Activation.RELU_N1_TO_1: F.hardtanh,
    Activation.TANH: torch.tanh,
}

LOOSE = {"RESIZE_BILINEAR": 1e-6}
"""Tolerance where TFLite places pixels in float32 by definition."""


def cases() -> Iterator[Any]:
    for name in REFEREES:
        for number, example in enumerate(REGISTRY[name].examples()):
            yield pytest.param(name, example, id=f"{name}-{number}")


@pytest.mark.parametrize(("name", "example"), list(cases()))
def test_output_and_gradients(name: str, example: Example) -> None:
    inputs = [None if value is None else torch.tensor(value) for value in example.inputs]
    floats = [i for i, value in enumerate(inputs) if value is not None and value.is_floating_point()]
    for i in floats:
        inputs[i].requires_grad_()
    expected = REFEREES[name](example.op, *inputs)
    if expected is None:
        pytest.skip("PyTorch does not place these pixels")
    expected = ACTIVATIONS[example.op.activation](expected)
    found = computed(example.op, example.inputs)
    tolerance = LOOSE.get(name, 1e-9)
    np.testing.assert_allclose(found[0], expected.detach().numpy(), rtol=tolerance, atol=tolerance)
    if example.differentiable:
        gradients = torch.autograd.grad(
            expected, [inputs[i] for i in floats], torch.tensor(projections(found)[0])
        )
        for i, gradient_ in zip(floats, gradients, strict=True):
            mine = gradient(example.op, example.inputs, i)
            np.testing.assert_allclose(mine, gradient_.numpy(), rtol=tolerance, atol=tolerance)


def test_largest_of_equals_is_the_first() -> None:
    """PyTorch and ONERT send the gradient to the first of equal cells, in h-then-w order."""
    op = REGISTRY["MAX_POOL_2D"](Padding.VALID, 1, 1, 2, 2)  # type: ignore[call-arg]
    x = np.round(np.random.default_rng(0).uniform(0, 2, (2, 6, 6, 3)))
    given = torch.tensor(x, requires_grad=True)
    y = max_pool(op, given)
    (expected,) = torch.autograd.grad(y, given, torch.tensor(projections([y.detach().numpy()])[0]))
    np.testing.assert_allclose(gradient(op, [x], 0), expected.numpy())
