"""What convolutions, pools, products, norms and recurrences refuse, and what they know of unknown sizes."""

from __future__ import annotations

import struct
from typing import Any

import numpy as np
import pytest

from circle_train.errors import ModelError, UnsupportedOpError
from circle_train.ir import DType, TensorType
from circle_train.ops import REGISTRY, Op
from circle_train.ops.attributes import Padding, WeightsFormat


def op(name: str, **options: Any) -> Op:
    return REGISTRY[name](**options)


def f(*shape: int) -> TensorType:
    return TensorType(DType.FLOAT32, shape)


def known(*values: Any) -> TensorType:
    value = np.array(values, np.int32)
    return TensorType(DType.INT32, value.shape, value)


def custom(*fields: int) -> Op:
    return op("CUSTOM:Convolution2DTransposeBias", custom_options=struct.pack(f"<{len(fields)}i", *fields))


POOL = {"filter_width": 3, "filter_height": 3}
REFUSED: list[tuple[Op, list[TensorType | None], str]] = [
    (
        op("CONV_2D"),
        [f(1, 8, 8, 3), f(16, 3, 3, 4)],
        "input has 3 channels, weights take 4 .*1×8×8×3.*16×3×3×4",
    ),
    (op("CONV_2D"), [f(1, 8, 8, 4), f(15, 3, 3, 2)], "2 groups do not divide 15 output channels"),
    (
        op("CONV_2D"),
        [f(1, 8, 8, 3), known(1).with_shape((16, 3, 3, 3))],
        "types FLOAT32, INT32, expected one float",
    ),
    (op("AVERAGE_POOL_2D"), [known(1).with_shape((1, 8, 8, 3))], "element types INT32, expected one float"),
    (op("CONV_2D"), [f(8, 8, 4), f(16, 3, 3, 4)], "input is float32 8×8×4 of rank 3, expected rank 4"),
    (op("CONV_2D"), [f(1, 8, 8, 3), f(16, 3, 3, 3), f(3)], "bias is float32 3, expected 16 elements"),
    (op("CONV_2D", stride_w=0), [f(1, 8, 8, 3), f(16, 3, 3, 3)], r"strides \(1, 0\)"),
    (op("CONV_2D", dilation_h_factor=0), [f(1, 8, 8, 3), f(16, 3, 3, 3)], r"dilations \(0, 1\)"),
    (op("CONV_2D"), [f(1, 8, 8, 3), f(16, 0, 3, 3)], r"the kernel has size \(0, 3\)"),
    (
        op("CONV_2D", padding=Padding.VALID),
        [f(1, 2, 8, 3), f(16, 3, 3, 3)],
        "window of 3 does not fit into 2",
    ),
    (op("DEPTHWISE_CONV_2D"), [f(1, 8, 8, 3), f(1, 3, 3, 4)], "input has 3 channels, weights make 4"),
    (op("DEPTHWISE_CONV_2D"), [f(1, 8, 8, 3), f(2, 3, 3, 3)], "first dimension must be 1"),
    (op("TRANSPOSE_CONV"), [known(1, 8, 8, 5), f(5, 3, 3, 4), f(1, 8, 8, 3)], "3 channels, weights take 4"),
    (
        op("TRANSPOSE_CONV"),
        [known(1, 8, 8, 4), f(5, 3, 3, 3), f(1, 8, 8, 3)],
        "the last is 5, the weights' output",
    ),
    (op("TRANSPOSE_CONV"), [known(1, 8, 5), f(5, 3, 3, 3), f(1, 8, 8, 3)], "expected 4 positive sizes"),
    (
        custom(3, 1, 1),
        [f(1, 8, 8, 3), f(2, 2, 2, 3), f(2)],
        "padding 3 and strides 1×1, expected padding 1 or 2",
    ),
    (custom(1, 1), [f(1, 8, 8, 3), f(2, 2, 2, 3), f(2)], "custom options have 8 bytes, expected at least 12"),
    (op("CONV_3D"), [f(1, 4, 8, 8, 3), f(3, 3, 3, 4, 5)], "input has 3 channels, weights take 4"),
    (
        op("MAX_POOL_2D", padding=Padding.VALID, **POOL),
        [f(1, 2, 8, 3)],
        "window of 3 does not fit into 2 positions",
    ),
    (op("AVERAGE_POOL_2D", filter_width=0), [f(1, 8, 8, 3)], r"the kernel has size \(1, 0\)"),
    (op("FULLY_CONNECTED"), [f(2, 7), f(3, 5)], "number of elements must be a multiple of 5"),
    (op("FULLY_CONNECTED", keep_num_dims=True), [f(2, 5, 2), f(3, 5)], "last dimension must be 5"),
    (op("FULLY_CONNECTED"), [f(2, 5), f(3, 5, 1)], "weights is float32 3×5×1 of rank 3, expected rank 2"),
    (op("BATCH_MATMUL"), [f(2, 3, 4), f(2, 5, 6)], "4 columns meet 5 rows"),
    (
        op("BATCH_MATMUL"),
        [f(2, 3, 4), f(3, 4, 6)],
        "leading sizes of float32 2×3×4 and float32 3×4×6 do not broadcast",
    ),
    (op("BATCH_MATMUL"), [f(4), f(4, 6)], "expected at least rank 2"),
    (op("LOCAL_RESPONSE_NORMALIZATION", radius=-1), [f(1, 2, 2, 3)], "radius -1"),
    (op("INSTANCE_NORM"), [f(1, 2, 2, 3), f(4), f(3)], "gamma is float32 4, expected 3 elements"),
    (op("INSTANCE_NORM"), [f(2, 3), f(3), f(3)], "expected batch × spatial sizes × channels"),
    (op("RMS_NORM"), [f(2, 3), f(4)], "gamma is float32 4"),
    (op("RESIZE_BILINEAR"), [f(1, 2, 2, 3), known(4)], r"size is \[4\], expected two positive numbers"),
    (
        op("RESIZE_BILINEAR", align_corners=True, half_pixel_centers=True),
        [f(1, 2, 2, 3), known(4, 4)],
        "both set",
    ),
    (
        op("SPACE_TO_DEPTH", block_size=2),
        [f(1, 4, 5, 3)],
        "width 5 of float32 1×4×5×3 is no multiple of the block 2",
    ),
    (op("DEPTH_TO_SPACE", block_size=2), [f(1, 4, 4, 6)], "6 channels of .* are no multiple of 4"),
    (op("DEPTH_TO_SPACE", block_size=0), [f(1, 4, 4, 6)], "block_size is 0, expected at least 1"),
    (op("SPACE_TO_BATCH_ND"), [f(1, 5, 4, 3), known(2, 2), known((0, 0), (0, 0))], "no multiple of 2"),
    (
        op("BATCH_TO_SPACE_ND"),
        [f(6, 5, 4, 3), known(2, 2), known((0, 0), (0, 0))],
        "batch 6 .* no multiple of 4",
    ),
    (op("BATCH_TO_SPACE_ND"), [f(4, 1, 1, 3), known(2, 2), known((1, 1), (0, 0))], "leave nothing"),
    (
        op("SPACE_TO_BATCH_ND"),
        [f(1, 4, 4, 3), known(2), known((0, 0), (0, 0))],
        r"expected the shape \[1, 2\]",
    ),
    (op("SVDF", rank=3), [f(2, 3), f(4, 3), f(4, 5)], "of rank 3 do not fit"),
    (
        op("UNIDIRECTIONAL_SEQUENCE_RNN"),
        [f(2, 5, 3), f(4, 2), f(4, 4), f(4)],
        "input has 3 features, weights 'w'",
    ),
    (op("UNIDIRECTIONAL_SEQUENCE_RNN"), [f(5, 3), f(4, 3), f(4, 4), f(4)], "of rank 2, expected rank 3"),
]


@pytest.mark.parametrize(("operator", "types", "message"), REFUSED)
def test_refused(operator: Op, types: list[TensorType | None], message: str) -> None:
    with pytest.raises(ModelError, match=message) as error:
        operator.infer_types(types)
    assert str(error.value).startswith(f"{operator.name}: ")


def test_unsupported_forms_are_refused() -> None:
    packed = op("FULLY_CONNECTED", weights_format=WeightsFormat.SHUFFLED4x16INT8)
    with pytest.raises(UnsupportedOpError, match="SHUFFLED4x16INT8, only DEFAULT"):
        packed.infer_types([f(2, 5), f(3, 5)])
    linked = [f(2, 5, 3), f(4, 3), f(4, 4), f(4), None, f(4, 3), f(4, 4), f(4), None, f(2, 5, 3)]
    with pytest.raises(UnsupportedOpError, match="auxiliary input"):
        op("BIDIRECTIONAL_SEQUENCE_RNN").infer_types(linked)


UNKNOWN: list[tuple[Op, list[TensorType | None], tuple[int, ...]]] = [
    (op("CONV_2D", stride_h=2), [f(-1, -1, 5, 3), f(4, 3, 3, 3)], (-1, -1, 5, 4)),
    (op("DEPTHWISE_CONV_2D", stride_w=2), [f(-1, 6, -1, 3), f(1, 3, 3, 6)], (-1, 6, -1, 6)),
    (op("TRANSPOSE_CONV"), [f(4), f(5, 3, 3, 3), f(-1, 8, 8, 3)], (-1, -1, -1, 5)),
    (custom(1, 2, 2), [f(-1, -1, 8, 3), f(2, 2, 2, 3), f(2)], (-1, -1, 16, 2)),
    (op("CONV_3D"), [f(-1, 4, -1, 8, 3), f(3, 3, 3, 3, 5)], (-1, 4, -1, 8, 5)),
    (op("MAX_POOL_2D", stride_h=2, **POOL), [f(-1, 5, -1, 3)], (-1, 3, -1, 3)),
    (op("FULLY_CONNECTED"), [f(-1, 5), f(3, 5)], (-1, 3)),
    (op("FULLY_CONNECTED"), [f(-1, 7, 5), f(3, 5)], (-1, 3)),
    (op("FULLY_CONNECTED", keep_num_dims=True), [f(-1, 7, 5), f(3, 5)], (-1, 7, 3)),
    (op("BATCH_MATMUL"), [f(-1, 2, 3, 4), f(4, 6)], (-1, 2, 3, 6)),
    (op("BATCH_MATMUL"), [f(-1, 3, 4), f(1, 4, -1)], (-1, 3, -1)),
    (op("RESIZE_BILINEAR"), [f(-1, 2, 2, 3), f(2)], (-1, -1, -1, 3)),
    (op("SPACE_TO_DEPTH"), [f(-1, -1, 4, 3)], (-1, -1, 2, 12)),
    (op("DEPTH_TO_SPACE"), [f(-1, -1, 4, 12)], (-1, -1, 8, 3)),
    (op("SPACE_TO_BATCH_ND"), [f(-1, 4, -1, 3), known(2, 2), known((0, 0), (0, 0))], (-1, 2, -1, 3)),
    (op("BATCH_TO_SPACE_ND"), [f(-1, 4, -1, 3), known(2, 2), known((1, 0), (0, 0))], (-1, 7, -1, 3)),
    (op("UNIDIRECTIONAL_SEQUENCE_RNN"), [f(-1, -1, 3), f(4, 3), f(4, 4), f(4)], (-1, -1, 4)),
    (op("SVDF"), [f(-1, 3), f(4, 3), f(4, 5)], (-1, 4)),
]


@pytest.mark.parametrize(("operator", "types", "shape"), UNKNOWN)
def test_unknown_sizes_stay_unknown(
    operator: Op, types: list[TensorType | None], shape: tuple[int, ...]
) -> None:
    assert operator.infer_types(types)[0].shape == shape


def test_large_images_are_convolved_in_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    """However small the chunks, results are the same; a depthwise block may be a single row."""
    rng = np.random.default_rng(0)
    x, dy = rng.uniform(-1, 1, (2, 9, 8, 4)), rng.uniform(-1, 1, (2, 9, 8, 6))
    full, w = op("CONV_2D"), rng.uniform(-1, 1, (6, 3, 3, 4))
    depthwise, d = op("DEPTHWISE_CONV_2D"), rng.uniform(-1, 1, (1, 3, 3, 4))

    def results() -> list[Any]:
        return [full.forward(x, w), full.grad_w(dy, x, w.shape), depthwise.forward(x, d)]  # type: ignore[attr-defined]

    before = results()
    monkeypatch.setattr("circle_train.ops.window.CHUNK_BYTES", 1)
    monkeypatch.setattr("circle_train.ops.layers.conv.BLOCK_ELEMENTS", 1)
    for own, expected in zip(results(), before, strict=True):
        np.testing.assert_allclose(own, expected, rtol=1e-12)
