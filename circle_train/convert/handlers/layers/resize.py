"""Resize: Circle's two operators where they agree with ONNX, else one interpolation matrix per axis."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import numpy as np

from circle_train.convert.building.builder import Builder
from circle_train.convert.building.refusal import Refusal
from circle_train.convert.building.registry import Call, front, handles
from circle_train.convert.handlers.layers.open_resize import resampled
from circle_train.ir import Tensor
from circle_train.ir.size import Size, is_open
from circle_train.ir.tensor_type import Array
from circle_train.passes.fold import LARGEST_FOLDED

LARGEST_FRACTION = 64
LONGEST = 1 << 15
"""Elements along an axis, for each of which the evaluator's weights are asked."""
"""Of which a scale may be made that is applied to an open size."""


@handles("Upsample")
@handles("Resize", since=10)
def resize_10(c: Call) -> Tensor:
    """Before opset 11: by scales, positions without an offset."""
    given = c.attr("scales")
    scales = [float(s) for s in (c.value(1, "scales") if given is None else given)]
    target = [scaled(n, s) for n, s in zip(c.shape(), scales, strict=True)]
    attributes = {
        "mode": c.attr("mode", "nearest"),
        "coordinate_transformation_mode": "asymmetric",
        "nearest_mode": "floor",
    }
    return resized(c, target, scales, attributes, list(range(c.rank())), None)


def scaled(size: int, scale: float) -> int:
    """floor(size · scale) in single precision, as onnxruntime and ONNX's shape inference compute it."""
    if scale == 1:
        return size
    if not isinstance(size, Size):
        return int(np.floor(np.float32(size) * np.float32(scale)))
    exact = Fraction(float(scale))
    if exact.denominator > LARGEST_FRACTION:
        raise Refusal("it scales an open size by a fraction that single precision rounds")
    return size * exact.numerator // exact.denominator


@handles("Resize", since=11)
def resize(c: Call) -> Tensor:
    b, dims = c.b, c.shape()
    axes = [front(int(a), len(dims)) for a in c.attr("axes") or range(len(dims))]
    attributes = {name: c.attributes[name] for name in PASSED if name in c.attributes}
    roi = b.value(c.optional(1)) if c.optional(1) is not None else None
    if c.attr("coordinate_transformation_mode") == "tf_crop_and_resize" and roi is None:
        raise Refusal("its region of interest is computed while running")
    sizes = c.optional(3)
    if sizes is not None and sizes.type.size:
        return _to_sizes(c, sizes, dims, axes, attributes, roi)
    scales = b.value(c.optional(2))
    if scales is None:
        raise Refusal("its scales are computed while running")
    target, wide = list(dims), [1.0] * len(dims)
    for axis, scale in zip(axes, scales.tolist(), strict=True):
        target[axis], wide[axis] = scaled(dims[axis], scale), scale
    return resized(c, target, wide, attributes, axes, roi)


PASSED = (
    "mode", "coordinate_transformation_mode", "nearest_mode", "cubic_coeff_a", "exclude_outside",
    "extrapolation_value", "antialias",
)  # fmt: skip


def _to_sizes(
    c: Call,
    sizes: Tensor,
    dims: Sequence[int],
    axes: list[int],
    attributes: dict[str, object],
    roi: Array | None,
) -> Tensor:
    known, declared = c.b.sizes(sizes), c.declared_shape()
    policy = c.attr("keep_aspect_ratio_policy", "stretch")
    if known is None and declared is None:
        raise Refusal("its sizes are computed while running")
    if known is None and policy != "stretch":
        raise Refusal(f"its sizes are computed while running and kept in proportion ({policy})")
    wanted = list(known) if known is not None else [(declared or ())[axis] for axis in axes]
    target: list[int] = list(dims)
    scales: list[float | None] = [1.0] * len(dims)
    ratio: float | None = None
    if policy != "stretch":
        if is_open([*wanted, *(dims[a] for a in axes)]):
            raise Refusal(f"it keeps a symbolic size in proportion ({policy})")
        ratios = [w / dims[a] for w, a in zip(wanted, axes, strict=True)]
        ratio = min(ratios) if policy == "not_larger" else max(ratios)
        wanted = [int(np.floor(ratio * dims[a] + 0.5)) for a in axes]
    for axis, size in zip(axes, wanted, strict=True):
        target[axis], scales[axis] = size, ratio
    return resized(c, target, scales, attributes, axes, roi)


def resized(
    c: Call,
    target: Sequence[int],
    scales: Sequence[float | None],
    attributes: dict[str, object],
    axes: list[int],
    roi: Array | None,
) -> Tensor:
    """The input at the target sizes."""
    b, x, dims = c.b, c[0], c.shape()
    crop = attributes.get("coordinate_transformation_mode") == "tf_crop_and_resize"
    changed = [a for a in axes if crop or not (dims[a] == target[a] and scales[a] in (1.0, None))]
    if not changed:
        return x
    options = circle_options(dims, target, scales, attributes, changed)
    if options is not None:
        name, flags = options
        size = b.integers([target[2], target[3]])
        return b.channels_first(b(name, b.channels_last(x), size, **flags))
    if attributes.get("coordinate_transformation_mode") == "align_corners" and any(
        not is_whole(dims[a], scales[a]) for a in changed
    ):
        raise Refusal(
            "its scale gives a fraction of an element, of which align_corners has no one meaning; give sizes"
        )
    unknown = is_open([n[a] for n in (dims, target) for a in changed])
    if unknown or attributes.get("coordinate_transformation_mode") == "tf_half_pixel_for_nn":
        for axis in changed:
            x = resampled(b, x, axis, target[axis], scales[axis], attributes)
        return x
    outside = float(str(attributes.get("extrapolation_value", 0.0)))
    inside: Tensor | None = None
    for axis in changed:
        region = None if roi is None or not crop else _region(roi, axes, axis)
        matrix = interpolation(dims[axis], int(target[axis]), scales[axis], attributes, region)
        x = along_axis(b, x, matrix, axis)
        if crop and outside:
            rows = (np.abs(matrix).sum(1) > 0).astype(np.float32)
            part = b.like(x, rows.reshape([-1 if i == axis else 1 for i in range(len(dims))]))
            inside = part if inside is None else b("MUL", inside, part)
    if inside is not None:
        x = b("SELECT_V2", b("GREATER", inside, b.like(x, 0.5)), x, b.like(x, outside))
    return x


def is_whole(size: int, scale: float | None) -> bool:
    """Whether the scale leads to a whole number of elements; None stands for a size that was given."""
    if isinstance(size, Size):
        return scale is None or float(scale).is_integer()
    return scale is None or abs(size * scale - round(size * scale)) < 1e-5 * size * scale


def _is_more_than_one(size: int) -> bool:
    """Whatever an open size is."""
    low = size.low if isinstance(size, Size) else size
    return low is not None and low > 1


def _region(roi: Array, axes: list[int], axis: int) -> Array:
    position, half = axes.index(axis), len(roi) // 2
    return np.array([roi[position], roi[position + half]], np.float32)


def circle_options(
    dims: Sequence[int],
    target: Sequence[int],
    scales: Sequence[float | None],
    attributes: dict[str, object],
    changed: list[int],
) -> tuple[str, dict[str, bool]] | None:
    """Circle's operator and its flags, where it computes the same."""
    mode, how = (
        attributes.get("mode", "nearest"),
        attributes.get("coordinate_transformation_mode", "half_pixel"),
    )
    if len(dims) != 4 or not set(changed) <= {2, 3} or attributes.get("antialias"):
        return None
    if not all(is_whole(dims[a], scales[a]) for a in changed):
        return None
    if how == "pytorch_half_pixel" and all(_is_more_than_one(target[a]) for a in (2, 3)):
        how = "half_pixel"
    if mode == "linear":
        flags = {
            "half_pixel": (False, True),
            "align_corners": (True, False),
            "asymmetric": (False, False),
        }.get(str(how))
        if flags is None or (how == "align_corners" and any(target[a] == 1 for a in (2, 3))):
            return None
        return "RESIZE_BILINEAR", {"align_corners": flags[0], "half_pixel_centers": flags[1]}
    rounding = attributes.get("nearest_mode", "round_prefer_floor")
    whole = all(target[a] % dims[a] == 0 for a in (2, 3))
    down = all(dims[a] % target[a] == 0 for a in (2, 3))
    if mode == "nearest" and how == "asymmetric" and rounding == "floor" and (whole or down):
        return "RESIZE_NEAREST_NEIGHBOR", {}
    if mode == "nearest" and how == "half_pixel" and whole and str(rounding).startswith("round_prefer"):
        return "RESIZE_NEAREST_NEIGHBOR", {}
    return None


def interpolation(
    size: int, target: int, scale: float | None, attributes: dict[str, object], roi: Array | None
) -> Array:
    """What ONNX's own evaluator makes of each unit vector: the matrix target × size of one axis."""
    if target > LONGEST or size * target > LARGEST_FOLDED:
        raise Refusal(
            f"it makes {target} of {size} elements, expected up to {LONGEST} and {LARGEST_FOLDED} weights"
        )
    import onnx
    from onnx.reference import ReferenceEvaluator

    kept = {k: v for k, v in attributes.items() if k != "extrapolation_value"}
    names = ["x", "roi", "scales"] if scale is not None else ["x", "roi", "", "sizes"]
    node = onnx.helper.make_node("Resize", names, ["y"])
    node.attribute.extend(onnx.helper.make_attribute(name, value) for name, value in kept.items())
    info = [onnx.helper.make_tensor_value_info(n, onnx.TensorProto.FLOAT, None) for n in names if n]
    out = onnx.helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, None)
    model = onnx.helper.make_model(
        onnx.helper.make_graph([node], "axis", info, [out]), opset_imports=[onnx.helper.make_opsetid("", 19)]
    )
    region = (
        np.array([0, 0, 1, 1], np.float32) if roi is None else np.array([0, roi[0], 1, roi[1]], np.float32)
    )
    feeds: dict[str, Array] = {"x": np.eye(size, dtype=np.float32), "roi": region}
    feeds |= (
        {"sizes": np.array([size, target])}
        if scale is None
        else {"scales": np.array([1.0, scale], np.float32)}
    )
    outputs: Any = ReferenceEvaluator(model).run(None, feeds)
    result = np.asarray(outputs[0])
    if scale is not None and scale * size < target <= np.float32(size) * np.float32(scale):
        above = float(np.nextafter(np.float32(scale), np.float32(np.inf)))
        return interpolation(size, target, above, attributes, roi)
    if result.shape != (size, target):
        raise Refusal(f"its scale {scale} does not lead from {size} to {target}")
    return np.ascontiguousarray(result.T)


def along_axis(b: Builder, x: Tensor, matrix: Array, axis: int) -> Tensor:
    """The matrix applied along one axis; picking single elements where each row has a single one."""
    if ((matrix == 0) | (matrix == 1)).all() and (matrix.sum(1) == 1).all():
        return b("GATHER", x, b.constant(matrix.argmax(1), np.int32), axis=axis, batch_dims=0)
    order = [i for i in range(x.type.rank) if i != axis] + [axis]
    y = b("FULLY_CONNECTED", b.transpose(x, order), b.like(x, matrix), keep_num_dims=True)
    return b.transpose(y, [order.index(i) for i in range(len(order))])
