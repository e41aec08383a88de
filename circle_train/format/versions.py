"""Operator versions that runtimes ask for, for operators that we add; loaded operators keep theirs.

TFLite raises an operator's version when it learns a type or an option; an interpreter refuses a version that
it does not know, and older ones run a file only if its versions are no higher than needed.
"""

from __future__ import annotations

from collections.abc import Callable

from circle_train.ir import DType, Node, Tensor

Feature = Callable[[object, list[Tensor], Node], int]
"""The version that a node needs, from its op, its inputs that are there, and itself."""

_INT8 = {DType.INT8: 2}
_INT8_INT16 = {DType.INT8: 2, DType.INT16: 3}
_BOTH_2 = {DType.INT8: 2, DType.INT16: 2}

BY_TYPE: dict[str, dict[DType, int]] = {
    **dict.fromkeys(("DEPTH_TO_SPACE", "SPACE_TO_DEPTH", "SPLIT_V", "SUM", "LOG_SOFTMAX", "GREATER"), _INT8),
    **dict.fromkeys(("LESS_EQUAL", "SQUARED_DIFFERENCE", "TOPK_V2", "L2_NORMALIZATION"), _INT8),
    **dict.fromkeys(("AVERAGE_POOL_2D", "MAX_POOL_2D", "TANH", "LOGISTIC", "PACK", "LESS"), _INT8_INT16),
    **dict.fromkeys(("GREATER_EQUAL", "SOFTMAX", "MEAN", "MIRROR_PAD", "REDUCE_MAX"), _INT8_INT16),
    **dict.fromkeys(("REDUCE_MIN", "RELU6", "RSQRT", "PAD", "PADV2", "BATCH_MATMUL"), _INT8_INT16),
    **dict.fromkeys(("EXP", "LOG", "REDUCE_PROD", "FLOOR_MOD"), _BOTH_2),
    "ABS": {DType.UINT8: 2, DType.INT8: 2, DType.INT16: 4, DType.INT32: 5},
    "ADD": {DType.INT8: 2, DType.INT16: 5, DType.INT64: 4},
    "ARG_MAX": {DType.INT8: 2, DType.BOOL: 3},
    "ARG_MIN": {DType.INT8: 2, DType.BOOL: 3},
    "BATCH_TO_SPACE_ND": {DType.INT8: 2, DType.INT16: 4},
    "BROADCAST_TO": {DType.INT8: 3, DType.INT16: 3},
    "CONCATENATION": {DType.INT8: 2, DType.INT16: 3, DType.UINT32: 4},
    "DEQUANTIZE": {DType.INT8: 2, DType.INT16: 3, DType.FLOAT16: 3, DType.INT4: 6},
    "EQUAL": {DType.INT8: 2, DType.STRING: 3, DType.INT16: 4},
    "FILL": {DType.BOOL: 2, DType.STRING: 2, DType.INT8: 3, DType.INT16: 3, DType.FLOAT16: 4},
    "FLOOR_DIV": {DType.FLOAT32: 2, DType.INT8: 3, DType.INT16: 3},
    "GATHER": {DType.INT8: 2, DType.BOOL: 3, DType.INT16: 4, DType.INT4: 7},
    "GATHER_ND": {DType.STRING: 2, DType.INT16: 3, DType.BOOL: 5},
    "GELU": {DType.INT8: 2, DType.UINT8: 2},
    "LEAKY_RELU": {DType.INT16: 2},
    "MAXIMUM": {DType.INT8: 2, DType.INT16: 4},
    "MINIMUM": {DType.INT8: 2, DType.INT16: 4},
    "MUL": {DType.INT8: 2, DType.INT64: 5, DType.COMPLEX64: 6, DType.INT16: 7, DType.UINT32: 7},
    "NOT_EQUAL": {DType.INT8: 2, DType.STRING: 3},
    "RANGE": {DType.INT64: 2},
    "RELU": {DType.INT8: 2, DType.UINT8: 2, DType.INT16: 3},
    "RESIZE_BILINEAR": {DType.INT8: 2, DType.INT16: 4},
    "RESIZE_NEAREST_NEIGHBOR": {DType.INT8: 2, DType.INT16: 4},
    "REVERSE_V2": {DType.BOOL: 2, DType.INT8: 3},
    "SELECT": {DType.INT8: 2, DType.UINT32: 4},
    "SELECT_V2": {DType.UINT32: 2},
    "SIGN": {DType.INT32: 2},
    "SLICE": {DType.INT8: 2, DType.STRING: 3, DType.INT16: 4, DType.UINT32: 6},
    "SPACE_TO_BATCH_ND": {DType.INT8: 2, DType.INT16: 4},
    "SPLIT": {DType.INT8: 2, DType.INT32: 3, DType.INT16: 4},
    "SQUEEZE": {DType.STRING: 2},
    "STRIDED_SLICE": {DType.INT8: 2, DType.BOOL: 3, DType.STRING: 5, DType.UINT32: 7},
    "SUB": {DType.INT8: 2, DType.INT64: 4, DType.INT16: 5},
    "TILE": {DType.STRING: 2, DType.INT8: 3},
    "TRANSPOSE": {DType.INT8: 2, DType.BOOL: 3, DType.INT16: 5},
    "UNPACK": {DType.INT8: 2, DType.UINT8: 2, DType.BOOL: 3, DType.INT16: 4},
}
"""The version that brought an element type; 1 for those not named."""
SUBJECT = {"SPLIT": 1, "FILL": 1}
"""The input whose type counts, where it is not the first."""


def version_of(node: Node) -> int:
    """The lowest version of the operator that has what this node uses."""
    name, inputs = node.op.name, [tensor for tensor in node.inputs if tensor is not None]
    subject = SUBJECT.get(name, 0)
    of_type = BY_TYPE.get(name, {}).get(inputs[subject].dtype, 1) if subject < len(inputs) else 1
    of_features = FEATURES[name](node.op, inputs, node) if name in FEATURES else 1
    return max(of_type, of_features)


def _rank_above(limit: int, version: int) -> Feature:
    return lambda op, inputs, node: version if inputs[0].type.rank > limit else 1


def _broadcast_above_4(version: int) -> Feature:
    """Operands of unequal shape and more than four dimensions."""

    def feature(op: object, inputs: list[Tensor], node: Node) -> int:
        unequal = len({tensor.shape for tensor in inputs}) > 1
        return version if unequal and max(tensor.type.rank for tensor in inputs) > 4 else 1

    return feature


def _option(version: int, *names: str) -> Feature:
    """Any of these options is set."""
    return lambda op, inputs, node: version if any(getattr(op, name, False) for name in names) else 1


def _any_type(versions: dict[DType, int]) -> Feature:
    """The types of inputs and outputs alike."""
    return lambda op, inputs, node: max(versions.get(tensor.dtype, 1) for tensor in [*inputs, *node.outputs])


def _most(*features: Feature) -> Feature:
    return lambda op, inputs, node: max(feature(op, inputs, node) for feature in features)


FEATURES: dict[str, Feature] = {
    "BATCH_TO_SPACE_ND": lambda op, inputs, node: 1 if inputs[0].type.rank == 4 else 3,
    "BROADCAST_TO": lambda op, inputs, node: 2,
    "CAST": _any_type(
        {
            DType.UINT32: 2,
            DType.INT8: 3,
            DType.UINT16: 4,
            DType.FLOAT16: 5,
            DType.FLOAT64: 5,
            DType.BFLOAT16: 7,
        }
    ),
    "CONV_2D": lambda op, inputs, node: 1 if inputs[0].shape[-1:] == inputs[1].shape[-1:] else 6,
    "DEPTHWISE_CONV_2D": lambda op, inputs, node: (
        1 if getattr(op, "dilation_w_factor", 1) == getattr(op, "dilation_h_factor", 1) == 1 else 2
    ),
    "DIV": _broadcast_above_4(2),
    "FULLY_CONNECTED": _most(
        lambda op, inputs, node: 6 if len(node.inputs) == 2 else 1,
        _option(5, "keep_num_dims"),
    ),
    "GATHER": _option(5, "batch_dims"),
    "MAXIMUM": _broadcast_above_4(3),
    "MINIMUM": _broadcast_above_4(3),
    "PAD": _rank_above(4, 4),
    "PADV2": _rank_above(4, 4),
    "RESIZE_BILINEAR": _option(3, "half_pixel_centers"),
    "RESIZE_NEAREST_NEIGHBOR": _option(3, "half_pixel_centers", "align_corners"),
    "SELECT": lambda op, inputs, node: 3 if any(tensor.type.rank == 5 for tensor in inputs) else 1,
    "SLICE": _rank_above(4, 5),
    "SPACE_TO_BATCH_ND": lambda op, inputs, node: 1 if inputs[0].type.rank == 4 else 3,
    "STRIDED_SLICE": _most(
        _rank_above(4, 4), _option(6, "ellipsis_mask", "new_axis_mask"), _option(8, "offset")
    ),
    "SUB": _broadcast_above_4(3),
    "TRANSPOSE": _most(_rank_above(4, 4), _rank_above(5, 6)),
    "TRANSPOSE_CONV": _most(
        lambda op, inputs, node: 3 if len(inputs) == 4 else 1,
        _option(4, "fused_activation_function"),
    ),
    "WHERE": lambda op, inputs, node: 1 if inputs[0].dtype is DType.BOOL else 2,
}
"""The version that the options and shapes of a node need."""
