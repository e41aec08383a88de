"""What every operator promises, checked for each of its examples; a new operator needs no test of its own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields, replace
from typing import Any

import numpy as np
import pytest
from single_operator import computed, every_example, every_operator, is_constant, is_float, module_of, single

from circle_train.errors import CircleTrainError
from circle_train.format import read, write
from circle_train.ir import DType, Node, TensorType
from circle_train.ir.tensor_type import Array
from circle_train.ops import REGISTRY, Example, Op
from circle_train.ops.attributes import Activation

ISSUE = """
ADD SUB MUL DIV MAXIMUM MINIMUM POW SQUARED_DIFFERENCE ADD_N FLOOR_DIV FLOOR_MOD NEG ABS SIGN SQRT RSQRT EXP
LOG SIN COS SQUARE CEIL FLOOR ROUND RELU RELU6 RELU_N1_TO_1 RELU_0_TO_1 LEAKY_RELU PRELU ELU GELU LOGISTIC
TANH HARD_SWISH SOFTMAX LOG_SOFTMAX CONV_2D DEPTHWISE_CONV_2D TRANSPOSE_CONV CONV_3D FULLY_CONNECTED
BATCH_MATMUL MAX_POOL_2D AVERAGE_POOL_2D L2_POOL_2D MEAN SUM REDUCE_MAX REDUCE_MIN REDUCE_PROD CUMSUM
ARG_MAX ARG_MIN TOPK_V2 RESHAPE TRANSPOSE SQUEEZE EXPAND_DIMS PAD PADV2 MIRROR_PAD CONCATENATION SPLIT
SPLIT_V PACK UNPACK SLICE STRIDED_SLICE TILE BROADCAST_TO GATHER GATHER_ND SCATTER_ND EMBEDDING_LOOKUP
ONE_HOT SELECT SELECT_V2 WHERE REVERSE_V2 SPACE_TO_DEPTH DEPTH_TO_SPACE SPACE_TO_BATCH_ND BATCH_TO_SPACE_ND
SHAPE RANK FILL RANGE ZEROS_LIKE CAST RESIZE_BILINEAR RESIZE_NEAREST_NEIGHBOR L2_NORMALIZATION
LOCAL_RESPONSE_NORMALIZATION INSTANCE_NORM RMS_NORM EQUAL NOT_EQUAL LESS LESS_EQUAL GREATER GREATER_EQUAL
LOGICAL_AND LOGICAL_OR LOGICAL_NOT DEQUANTIZE
"""
"""The operators that the project set out to train or run."""
DEMANDED = ISSUE.split()


def types_of(example: Example, values: Sequence[Array | None], known: bool = True) -> list[TensorType | None]:
    """The inputs' types; constants with their values if `known`."""
    return [
        None
        if value is None
        else TensorType(
            DType.of(value.dtype), value.shape, value if known and is_constant(example, i) else None
        )
        for i, value in enumerate(values)
    ]


def test_every_demanded_operator_is_there() -> None:
    assert sorted(set(DEMANDED) - set(REGISTRY)) == []


@every_operator
def test_has_examples(cls: type[Op]) -> None:
    assert list(cls.examples()), f"{cls.name} has no examples, so that nothing of it is tested"


@every_operator
def test_no_option_can_be_lost(cls: type[Op]) -> None:
    """For every option there is an example whose result or type changes, or is refused, without it."""
    unseen = {field.name for field in fields(cls)} - NEVER_COMPUTED
    for example in cls.examples():
        changed = {name for name in unseen if getattr(example.op, name) != getattr(cls(), name)}
        unseen -= {
            name for name in changed if not same(example, replace(example.op, **{name: getattr(cls(), name)}))
        }
    assert unseen == set()


def same(example: Example, op: Op) -> bool:
    """Whether another op makes the same types and results of the example's inputs."""
    try:
        types = types_of(example, example.inputs)
        if op.infer_types(types) != example.op.infer_types(types):
            return False
        results = zip(computed(op, example.inputs), computed(example.op, example.inputs), strict=True)
        return all(np.array_equal(a, b, equal_nan=a.dtype.kind == "f") for a, b in results)
    except (CircleTrainError, ValueError):
        return False


NEVER_COMPUTED = {
    "pot_scale_int16",
    "quantized_bias_type",
    "asymmetric_quantize_inputs",
    "weights_format",
    "in_data_type",
    "depth_multiplier",
    "then_subgraph_index",
    "else_subgraph_index",
    "cond_subgraph_index",
    "body_subgraph_index",
    "branch_subgraph_indices",
    "decomposition_subgraph_index",
    "update_computation_subgraph_index",
    "kernel_type",
    "validate_indices",
}
"""Options of integer and packed kernels, those that say what the inputs' types say already, a file's numbers of graphs,
and one that would let damage through."""


@every_operator
def test_gradient_or_reason(cls: type[Op]) -> None:
    """A demanded operator of floats stops gradients or has one; none does both."""
    assert not (cls.stops_gradient and cls.gradients)
    floats = any(is_float(value) for example in cls.examples() for value in example.inputs)
    assert cls.stops_gradient or cls.gradients or not floats or cls.name not in DEMANDED


@every_operator
def test_declared_inputs_exist(cls: type[Op]) -> None:
    names = {spec.name for spec in cls.inputs}
    views = {cls.view_of} - {None}
    assert views | set(cls.inplace) | set(cls.parameters) | set(cls.identity_gradient) <= names


@every_example
def test_inferred_type_is_computed_type(example: Example) -> None:
    values = single(example)
    inferred = example.op.infer_types(types_of(example, values))
    outputs = computed(example.op, values)
    assert len(inferred) == len(outputs)
    for type_, output in zip(inferred, outputs, strict=True):
        assert type_.dtype == DType.of(output.dtype)
        assert compatible(type_.shape, output.shape)
        if all(is_constant(example, i) or value is None for i, value in enumerate(values)):
            assert type_.shape == output.shape
        if type_.value is not None:
            np.testing.assert_array_equal(type_.value, output)


@every_example
def test_open_types_contradict_nothing(example: Example) -> None:
    """With sizes or values unknown, what is inferred still agrees with what is computed, or is refused."""
    values = single(example)
    outputs = computed(example.op, values)
    for known in (True, False):
        types = types_of(example, values, known)
        position = batch_input(example)
        batched = types[position] if position is not None else None
        if position is not None and batched is not None:
            types[position] = TensorType(batched.dtype, (-1, *batched.shape[1:]))
        try:
            inferred = example.op.infer_types(types)
        except CircleTrainError:
            assert not known, "constants are known and the batch alone is open: this must have a type"
            continue
        for type_, output in zip(inferred, outputs, strict=True):
            assert type_.dtype == DType.of(output.dtype)
            assert compatible(type_.shape, output.shape)


def batch_input(example: Example) -> int | None:
    """The input whose first axis is left open: the first with rows that is no constant and no weight."""
    op = example.op
    open_ = [
        i
        for i, value in enumerate(example.inputs)
        if not is_constant(example, i) and value is not None and value.shape[:1] > (1,)
    ]
    return next((i for i in open_ if op.input_name(i) not in op.parameters or "x1" in op.parameters), None)


def compatible(inferred: tuple[int, ...], shape: tuple[int, ...]) -> bool:
    return len(inferred) == len(shape) and all(a in (-1, b) for a, b in zip(inferred, shape, strict=True))


@every_example
def test_single_precision_is_near_double(example: Example) -> None:
    exact = computed(example.op, example.inputs)
    for output, reference in zip(computed(example.op, single(example)), exact, strict=True):
        assert (
            output.dtype != np.float64 or reference.dtype != np.float64 or "DType.FLOAT64" in repr(example.op)
        )
        np.testing.assert_allclose(output, reference, rtol=2e-5, atol=2e-5)


@every_example
def test_inputs_are_left_alone(example: Example) -> None:
    values = [None if value is None else value.copy() for value in example.inputs]
    computed(example.op, values)
    for value, before in zip(values, example.inputs, strict=True):
        if value is not None and before is not None:
            np.testing.assert_array_equal(value, before)


@every_example
def test_survives_writing_and_reading(example: Example) -> None:
    """Every option, every input, present or absent, and every type."""
    if example.op.name.startswith("CUSTOM:"):
        pytest.skip("custom operators are written as they were loaded, not made")
    module = module_of(example)
    back = read(write(module, "CIR0")).main.nodes
    assert len(back) == 1
    assert back[0].op == stored(example.op)
    assert described(back[0]) == described(module.main.nodes[0])


def stored(op: Op) -> Op:
    """The op with its numbers in the file's precision."""
    numbers = {field.name: getattr(op, field.name) for field in fields(op)}
    return replace(op, **{name: float(np.float32(x)) for name, x in numbers.items() if isinstance(x, float)})


def described(node: Node) -> list[Any]:
    tensors = [*node.inputs, *node.outputs]
    return [
        None if t is None else (t.name, t.type, t.data.tobytes() if t.is_constant else None) for t in tensors
    ]


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        (Activation.NONE, [-7, -1.5, -0.5, 0.5, 1.5, 7]),
        (Activation.RELU, [0, 0, 0, 0.5, 1.5, 7]),
        (Activation.RELU6, [0, 0, 0, 0.5, 1.5, 6]),
        (Activation.RELU_N1_TO_1, [-1, -1, -0.5, 0.5, 1, 1]),
        (Activation.TANH, np.tanh([-7, -1.5, -0.5, 0.5, 1.5, 7])),
        (Activation.SIGN_BIT, [1, 1, 1, 0, 0, 0]),
    ],
)
def test_fused_activations(kind: Activation, expected: Sequence[float]) -> None:
    """Values by hand, because gradients and forward share the bounds; slopes by differences."""
    x = np.array([-7, -1.5, -0.5, 0.5, 1.5, 7])
    y = kind.apply(x)
    np.testing.assert_array_equal(y, expected)
    slopes = (kind.apply(x + 1e-6) - kind.apply(x - 1e-6)) / 2e-6
    np.testing.assert_allclose(kind.gradient(np.full(6, 3.0), y), 3 * slopes, atol=1e-8)
