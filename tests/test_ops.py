"""What every operator promises, checked for each of its examples; a new operator needs no test of its own."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import fields, replace
from typing import Any

import numpy as np
import pytest
from single_operator import computed, is_constant, module_of, single

from circle_train.errors import CircleTrainError
from circle_train.format import read, write
from circle_train.ir import DType, Node, TensorType
from circle_train.ir.tensor_type import Array
from circle_train.ops import REGISTRY, Example, Op

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
STEP = 1e-5
DIRECTIONS = 3


def is_float(value: Array | None) -> bool:
    return value is not None and value.dtype == np.float64


def _examples() -> Iterator[Any]:
    """Every example of every operator, as pytest parameters."""
    for name, cls in sorted(REGISTRY.items()):
        for number, example in enumerate(cls.examples()):
            yield pytest.param(example, id=f"{name}-{number}")


def _differentiable() -> Iterator[Any]:
    """Every float input with a gradient, of every example."""
    for parameter in _examples():
        example: Example = parameter.values[0]
        for index, value in enumerate(example.inputs):
            name = example.op.input_name(index)
            if example.differentiable and is_float(value) and name in example.op.gradients:
                yield pytest.param(example, index, id=f"{parameter.id}-{name}{index}")


def _identical() -> Iterator[Any]:
    """Every input whose gradient is declared to be dy itself, where nothing is broadcast."""
    for parameter in _differentiable():
        example, index = parameter.values
        shape = np.shape(example.op.compute(example.inputs)[0])
        if (
            example.op.input_name(index) in example.op.identity_gradient
            and np.shape(example.inputs[index]) == shape
        ):
            yield parameter


every_example = pytest.mark.parametrize("example", list(_examples()))
every_gradient = pytest.mark.parametrize(("example", "index"), list(_differentiable()))
GRADIENTS = [parameter.values for parameter in _differentiable()]
every_operator = pytest.mark.parametrize(
    "cls", [pytest.param(cls, id=name) for name, cls in sorted(REGISTRY.items())]
)


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
}
"""Options of integer and packed kernels, and those that say what the inputs' types say already."""


@every_operator
def test_gradient_or_reason(cls: type[Op]) -> None:
    """A demanded operator of floats stops gradients or has one; none does both."""
    assert not (cls.stops_gradient and cls.gradients)
    floats = any(is_float(value) for example in cls.examples() for value in example.inputs)
    assert cls.stops_gradient or cls.gradients or not floats or cls.name not in DEMANDED


@every_operator
def test_every_gradient_has_an_example(cls: type[Op]) -> None:
    """A gradient that no example reaches could be anything."""
    reached = {ex.op.input_name(i) for ex, i in GRADIENTS if type(ex.op) is cls}
    assert set(cls.gradients) == reached


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


@every_gradient
def test_not_a_number_is_not_swallowed(example: Example, index: int) -> None:
    """A NaN in an element that matters reaches the result."""
    value = example.inputs[index]
    mattering = np.argwhere(gradient(example.op, example.inputs, index))
    assert value is not None
    for place in mattering[:1]:
        poisoned = value.copy()
        poisoned[tuple(place)] = np.nan
        inputs = [*example.inputs[:index], poisoned, *example.inputs[index + 1 :]]
        assert any(np.isnan(y).any() for y in computed(example.op, inputs) if y.dtype.kind == "f")


@every_gradient
def test_gradient_is_the_finite_difference(example: Example, index: int) -> None:
    """In float64, of a random projection of the outputs, along random directions of one input."""
    op, value = example.op, example.inputs[index]
    assert value is not None
    weights = projections(computed(op, example.inputs))
    analytic = gradient(op, example.inputs, index)
    assert analytic.dtype == np.float64
    for seed in range(DIRECTIONS):
        direction = np.random.default_rng(100 + seed).uniform(0.5, 1.5, value.shape)
        direction *= np.random.default_rng(200 + seed).choice([-1.0, 1.0], value.shape)
        ahead, behind = (
            projected(
                op,
                [*example.inputs[:index], value + sign * STEP * direction, *example.inputs[index + 1 :]],
                weights,
            )
            for sign in (1, -1)
        )
        numeric = (ahead - behind) / (2 * STEP)
        scale = float(np.abs(analytic * direction).sum())
        np.testing.assert_allclose(
            float((analytic * direction).sum()), numeric, rtol=1e-6, atol=1e-6 * scale + 1e-9
        )


def projections(outputs: Sequence[Array]) -> list[Array]:
    """Random weights for every output; integer outputs weigh nothing."""
    random = np.random.default_rng(7)
    return [random.uniform(0.5, 1.5, y.shape) * (y.dtype.kind == "f") for y in outputs]


def projected(op: Op, inputs: Sequence[Array | None], weights: Sequence[Array]) -> float:
    outputs = computed(op, inputs)
    return float(sum((y * w).sum() for y, w in zip(outputs, weights, strict=True) if y.dtype.kind == "f"))


def gradient(op: Op, inputs: Sequence[Array | None], index: int) -> Array:
    """The gradient of the projection by one input, through the fused activation, by the op's own method."""
    outputs = computed(op, inputs)
    dys = [op.activation.gradient(dy, y) for dy, y in zip(projections(outputs), outputs, strict=True)]
    padded = op.pad(inputs)
    given: dict[str, Any] = {"dy": dys[0], "dys": dys, "y": outputs[0], "y_shape": outputs[0].shape}
    given["index"] = index - (len(op.inputs) - 1)
    for position, spec in enumerate(op.inputs):
        operand = padded[position:] if spec.variadic else padded[position]
        given[spec.name] = operand
        given[f"{spec.name}_shape"] = [x.shape for x in operand] if spec.variadic else np.shape(operand)
    spec_ = op.gradients[op.input_name(index)]
    value = inputs[index]
    assert value is not None
    with np.errstate(all="ignore"):
        result = getattr(op, spec_.method)(**{name: given[name] for name in spec_.needs})
    return summed_to(np.asarray(result), value.shape)


def summed_to(array: Array, shape: tuple[int, ...]) -> Array:
    """Undo a broadcast, one axis at a time."""
    while array.ndim > len(shape):
        array = array.sum(axis=0)
    for axis, size in enumerate(shape):
        if size == 1 and array.shape[axis] != 1:
            array = array.sum(axis=axis, keepdims=True)
    assert array.shape == shape, f"the gradient has shape {array.shape}, the input {shape}"
    return array


@pytest.mark.parametrize(("example", "index"), list(_identical()))
def test_identity_gradients_are_dy(example: Example, index: int) -> None:
    """What is declared to need no gradient node hands dy on unchanged."""
    outputs = computed(example.op, example.inputs)
    dys = [example.op.activation.gradient(dy, y) for dy, y in zip(projections(outputs), outputs, strict=True)]
    np.testing.assert_array_equal(gradient(example.op, example.inputs, index), dys[0])


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
