"""Which operators treat every sample of a batch by itself, so that a batch may be taken in parts."""

from __future__ import annotations

from collections.abc import Callable, Sequence, Set

from circle_train.ir import Node, Tensor

Rule = Callable[[Node, Set[Tensor]], bool]
"""Whether a node whose outputs have all samples, and which reads tensors that do, keeps them apart."""


def is_fixed(node: Node, fixed: Set[Tensor]) -> bool:
    """Whether the node reads nothing but constants, weights and what is fixed already."""
    return bool(node.outputs) and not node.op.mutates and all(_is_given(t, fixed) for t in node.inputs)


def is_separable(
    node: Node, whole: Set[Tensor], batch: int, fixed: Set[Tensor] = frozenset(), folded: bool = False
) -> bool:
    """Whether one sample of the outputs depends on that sample of the inputs alone; `whole` tensors have all samples.

    With `folded`, a sample may take several entries of the first axis, as after a reshape from 8×128×256 to 1024×256.
    """
    data = [t for t in node.inputs if t in whole]
    if not data or not all(t in whole or _is_given(t, fixed) for t in node.inputs):
        return False
    sizes = {t.shape[0] if t.shape else 0 for t in (*data, *node.outputs) if t is not None}
    if not folded or 0 in sizes:
        apart = sizes == {batch}
    else:
        apart = not any(size % batch for size in sizes) and (len(sizes) == 1 or node.op.view_of is not None)
    if not apart:
        return False
    rule = RULES.get(node.op.name)
    return rule is not None and rule(node, whole)


def _is_given(tensor: Tensor | None, fixed: Set[Tensor]) -> bool:
    return tensor is None or tensor.is_constant or tensor.state is not None or tensor in fixed


def _always(node: Node, whole: Set[Tensor]) -> bool:
    return True


def _only(index: int, node: Node, whole: Set[Tensor]) -> bool:
    """Samples come in by one input."""
    return [i for i, t in enumerate(node.inputs) if t in whole] == [index]


def _only_first(node: Node, whole: Set[Tensor]) -> bool:
    return _only(0, node, whole)


def _in_rows(node: Node, whole: Set[Tensor]) -> bool:
    """Along the last axis, which is not that of the samples."""
    return _only_first(node, whole) and len(node.outputs[0].shape) > 1


def _in_rows_of_both(node: Node, whole: Set[Tensor]) -> bool:
    """Prediction and target have samples first, the prediction its classes last."""
    x = node.inputs[0]
    return x is not None and len(x.shape) > 1 and all(t in whole for t in node.inputs)


def _gives_classes(node: Node, whole: Set[Tensor]) -> bool:
    axis: int = node.op.axis
    return _only_first(node, whole) and axis % len(node.outputs[0].shape) != 0


def _broadcasts(node: Node, whole: Set[Tensor]) -> bool:
    """Every operand with samples has them first, and no other has that axis."""
    rank = len(node.outputs[0].shape)
    return all(
        t is None or (len(t.shape) == rank if t in whole else len(t.shape) < rank or t.shape[0] == 1)
        for t in node.inputs
    )


def _multiplies(node: Node, whole: Set[Tensor]) -> bool:
    return len(node.outputs[0].shape) > 2 and _broadcasts(node, whole)


def _along_axes(data: int, axes: int) -> Rule:
    """The inputs of these numbers hold the samples and say along which axes."""

    def rule(node: Node, whole: Set[Tensor]) -> bool:
        x, found = node.inputs[data], _values(node, axes)
        if x is None or found is None or not _only(data, node, whole):
            return False
        return all(i % len(x.shape) for i in found)

    return rule


def _joins(node: Node, whole: Set[Tensor]) -> bool:
    axis: int = node.op.axis
    return axis % len(node.outputs[0].shape) != 0 and all(t in whole for t in node.inputs)


def _permutes(node: Node, whole: Set[Tensor]) -> bool:
    order = _values(node, 1)
    return order is not None and order[0] == 0


def _pads(node: Node, whole: Set[Tensor]) -> bool:
    widths = _values(node, 1)
    return widths is not None and not any(widths[:2])


def _slices(node: Node, whole: Set[Tensor]) -> bool:
    begin, size = _values(node, 1), _values(node, 2)
    return begin is not None and size is not None and begin[0] == 0 and size[0] == -1


def _strides(node: Node, whole: Set[Tensor]) -> bool:
    """The first entry of begin, end and strides is `:`."""
    op, steps = node.op, _values(node, 3)
    masks = [
        getattr(op, f"{name}_mask") & 1 for name in ("begin", "end", "ellipsis", "new_axis", "shrink_axis")
    ]
    return steps is not None and steps[0] == 1 and masks == [1, 1, 0, 0, 0]


def _looks_up(node: Node, whole: Set[Tensor]) -> bool:
    """For each sample in a given table, or the given entries of each sample."""
    table = node.inputs[0]
    axis, batch = getattr(node.op, "axis", 0), getattr(node.op, "batch_dims", 0)
    if table is None or batch:
        return False
    return _only(0, node, whole) if axis % len(table.shape) else _only(1, node, whole)


def _values(node: Node, index: int) -> Sequence[int] | None:
    """The integers that a constant input holds."""
    tensor = node.inputs[index] if index < len(node.inputs) else None
    return None if tensor is None or not tensor.is_constant else [int(i) for i in tensor.data.reshape(-1)]


def _table(**rules: tuple[Rule, str]) -> dict[str, Rule]:
    return {name: rule for rule, names in rules.values() for name in names.split()}


RULES = _table(
    elementwise=(
        _broadcasts,
        """ADD SUB MUL DIV MAXIMUM MINIMUM SQUARED_DIFFERENCE POW RELU RELU6 RELU_N1_TO_1 RELU_0_TO_1 LEAKY_RELU PRELU
        ELU GELU LOGISTIC TANH HARD_SWISH NEG ABS SIGN SQRT RSQRT EXP LOG SQUARE FLOOR CEIL ROUND SIN COS CAST SELECT_V2
        EQUAL NOT_EQUAL LESS LESS_EQUAL GREATER GREATER_EQUAL LOGICAL_AND LOGICAL_OR LOGICAL_NOT
        ROUND_TO_BFLOAT16 SIGMOID_CROSS_ENTROPY BINARY_CROSS_ENTROPY""",
    ),
    windows=(
        _only_first,
        """CONV_2D DEPTHWISE_CONV_2D CONV_3D MAX_POOL_2D AVERAGE_POOL_2D L2_POOL_2D RESIZE_BILINEAR RESIZE_NEAREST_NEIGHBOR
        DEPTH_TO_SPACE SPACE_TO_DEPTH INSTANCE_NORM FULLY_CONNECTED""",
    ),
    rows=(_in_rows, "SOFTMAX LOG_SOFTMAX L2_NORMALIZATION LAYER_NORM RMS_NORM LOCAL_RESPONSE_NORMALIZATION"),
    views=(_always, "RESHAPE SQUEEZE EXPAND_DIMS"),
    losses=(
        _in_rows_of_both,
        "SOFTMAX_CROSS_ENTROPY CROSS_ENTROPY SPARSE_SOFTMAX_CROSS_ENTROPY SPARSE_CROSS_ENTROPY",
    ),
    classes=(_gives_classes, "ONE_HOT"),
    products=(_multiplies, "BATCH_MATMUL"),
    reductions=(_along_axes(0, 1), "MEAN SUM REDUCE_MAX REDUCE_MIN REDUCE_PROD"),
    joins=(_joins, "CONCATENATION PACK"),
    splits=(_along_axes(1, 0), "SPLIT"),
    uneven_splits=(_along_axes(0, 2), "SPLIT_V"),
    permutations=(_permutes, "TRANSPOSE"),
    paddings=(_pads, "PAD PADV2 MIRROR_PAD"),
    slices=(_slices, "SLICE"),
    strided_slices=(_strides, "STRIDED_SLICE"),
    tables=(_looks_up, "GATHER GATHER_FROM_END"),
)
