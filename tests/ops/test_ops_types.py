"""Type rules believe nothing: operands that are otherwise than an example's are computed as inferred, or refused."""

from __future__ import annotations

from typing import Any

import pytest
from near.operands import otherwise, recorded
from single_operator import computed, is_constant, single

from circle_train.errors import CircleTrainError
from circle_train.ir import DType, TensorType
from circle_train.ir.tensor_type import Array
from circle_train.ops import REGISTRY, Example

STUMBLES = "do not fit its options"
"""Says numpy of what the type rule let through."""
LATE = set(
    """
    ARG_MAX ARG_MIN BIDIRECTIONAL_SEQUENCE_LSTM BROADCAST_TO CONV_2D CONV_3D CONV_3D_TRANSPOSE
    CUSTOM:Convolution2DTransposeBias CUSTOM:TFLite_Detection_PostProcess CUSTOM:circle_train.onnx DILATE GRU IF
    LOG_SOFTMAX LSH_PROJECTION LSTM MAX_POOL_2D MULTINOMIAL NEG NON_MAX_SUPPRESSION_V4 NON_MAX_SUPPRESSION_V5
    ONE_HOT REDUCE_WINDOW RESIZE_BILINEAR RESIZE_NEAREST_NEIGHBOR SCATTER_ND SIGN SOFTMAX SPARSE_TO_DENSE
    STABLEHLO_CASE STABLEHLO_COMPOSITE STABLEHLO_GATHER STABLEHLO_PAD STABLEHLO_REDUCE_WINDOW STABLEHLO_SCATTER SVDF
    TRANSPOSE_CONV UNIDIRECTIONAL_SEQUENCE_LSTM UNSORTED_SEGMENT_MAX UNSORTED_SEGMENT_MIN WHILE
    """.split()
)
"""Whose rules leave something to numpy: sizes of 0, truth values, operands beside others' numbers. It is refused too."""


def wrong(example: Example, values: list[Array | None]) -> str | None:
    """In which way the results are not what was inferred; '' where they are, None where the rule refuses the operands."""
    types = [
        None
        if value is None
        else TensorType(DType.of(value.dtype), value.shape, value if is_constant(example, i) else None)
        for i, value in enumerate(values)
    ]
    try:
        inferred = example.op.infer_types(types)
    except CircleTrainError:
        return None
    try:
        made = [(DType.of(y.dtype), y.shape) for y in computed(example.op, values)]
    except CircleTrainError as error:
        return str(error) if STUMBLES in str(error) and example.op.name not in LATE else ""
    said = [
        (t.dtype, tuple(b if a == -1 else a for a, b in zip(t.shape, y[1], strict=False)))
        for t, y in zip(inferred, made, strict=True)
    ]
    return "" if said == made else f"said {said}, made {made}"


@pytest.mark.parametrize("name", sorted(REGISTRY))
def test_operands_are_refused_or_computed_as_inferred(name: str) -> None:
    """What weakens a rule lets something through that numpy stumbles over, of which it makes something else, or that was
    refused; what sharpens it refuses what was taken."""
    found: dict[str, Any] = {}
    counts: dict[str, list[int]] = {}
    for number, example in enumerate(REGISTRY[name].examples()):
        values = single(example)
        for i, value in enumerate(values):
            operand = example.op.input_name(i)
            for what, changed in [] if value is None else otherwise(value):
                said = wrong(example, [changed if j == i else other for j, other in enumerate(values)])
                counts.setdefault(operand, [0, 0])[said is None] += 1
                if said:
                    found[f"example {number}, {operand} {what}"] = said
    assert found == {}
    assert counts == recorded("taken_and_refused", name, counts)
