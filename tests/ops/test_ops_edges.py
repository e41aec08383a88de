"""Where examples do not reach: ties, overflow, values out of range, and types that contradict each other."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from single_operator import computed

from circle_train.errors import DataError, ModelError
from circle_train.ir import DType, Graph, Tensor, TensorType
from circle_train.ir.graph import constant
from circle_train.ir.tensor_type import Array
from circle_train.ops import REGISTRY, Op
from circle_train.ops.control.subgraph import infer_graph
from circle_train.ops.foreign.operator import Foreign
from circle_train.ops.internal.norms.batch_norm import BatchNorm

F, I, B = DType.FLOAT32, DType.INT32, DType.BOOL


def make(name: str, **options: Any) -> Op:
    return REGISTRY[name](**options)


def run(name: str, *inputs: Any, **options: Any) -> Array:
    return computed(make(name, **options), [np.asarray(x) for x in inputs])[0]


def ints(*numbers: int) -> TensorType:
    """A known vector."""
    return TensorType(I, (len(numbers),), np.array(numbers, np.int32))


def one(number: int) -> TensorType:
    """A known scalar."""
    return TensorType(I, (), np.array(number, np.int32))


X = TensorType(F, (2, 3, 4))

REFUSED: list[tuple[str, dict[str, Any], list[TensorType], str]] = [
    ("ADD", {}, [X, TensorType(F, (5,))], "2×3×4 and float32 5"),
    ("ADD", {}, [X, TensorType(I, (4,))], "insert a CAST"),
    ("ADD_N", {}, [X, TensorType(F, (2, 3))], "expected one shape"),
    ("BITWISE_XOR", {}, [X, X], "expected integers"),
    ("RELU", {}, [TensorType(I, (3,))], "expected floats"),
    ("PRELU", {}, [X, TensorType(F, (3,))], "do not broadcast"),
    ("PRELU", {}, [TensorType(F, (2, 1)), TensorType(F, (2, 4))], "broadcasts to the input"),
    ("SOFTMAX", {}, [TensorType(F, ())], "scalar"),
    ("L2_NORMALIZATION", {}, [TensorType(F, ())], "at least one axis"),
    ("MEAN", {}, [X, ints(3)], "axis 3 does not exist"),
    ("SUM", {}, [X, ints(0, -4)], "axis -4 does not exist"),
    ("SUM", {}, [X, TensorType(I, (2,))], "computed at run time"),
    ("REDUCE_ANY", {}, [X, ints(0)], "expected BOOL"),
    ("CUMSUM", {}, [X, one(3)], "axis 3 does not exist"),
    ("ARG_MAX", {}, [X, ints(0, 1)], "expected one integer"),
    ("ARG_MIN", {"output_type": DType.FLOAT32}, [X, one(0)], "output_type is FLOAT32"),
    ("TOPK_V2", {}, [X, one(5)], "k is 5, expected 0 to 4"),
    ("RESHAPE", {}, [X, ints(5, -1)], "24 elements"),
    ("RESHAPE", {}, [X, TensorType(I, (-1,))], "length is known before running"),
    ("RESHAPE", {}, [X, ints(-1, -1)], "24 elements"),
    ("RESHAPE", {}, [X, ints(5, 5)], "5×5"),
    ("SQUEEZE", {"squeeze_dims": (1,)}, [X], "has size 3, expected 1"),
    ("EXPAND_DIMS", {}, [X, one(4)], "axis 4"),
    ("TRANSPOSE", {}, [X, ints(0, 0, 1)], "every axis"),
    ("TRANSPOSE", {}, [X, ints(1, 0)], "vector of 3"),
    ("TILE", {}, [X, ints(1, -1, 1)], "multiples"),
    ("BROADCAST_TO", {}, [X, ints(2, 3, 5)], "does not broadcast"),
    ("BROADCAST_TO", {}, [X, ints(3, 4)], "does not broadcast"),
    ("PAD", {}, [X, TensorType(I, (3, 2), np.full((3, 2), -1))], "paddings hold -1"),
    ("PAD", {}, [X, TensorType(I, (2, 2))], "expected 3×2"),
    ("PADV2", {}, [X, TensorType(I, (3, 2)), one(0)], "one element of type FLOAT32"),
    ("MIRROR_PAD", {}, [TensorType(F, (3,)), TensorType(I, (1, 2), np.array([[3, 0]]))], "at most 2"),
    ("CONCATENATION", {"axis": 1}, [X, TensorType(F, (2, 5, 5))], "except along axis 1"),
    ("CONCATENATION", {"axis": 3}, [X, X], "axis 3"),
    ("PACK", {"values_count": 3}, [X, X], "values_count"),
    ("UNPACK", {"num": 5, "axis": 1}, [X], "expected num = 5"),
    ("SPLIT", {"num_splits": 2}, [one(1), X], "2 equal parts"),
    ("SPLIT_V", {"num_splits": 2}, [X, ints(1, 1), one(1)], "do not add up"),
    ("SPLIT_V", {"num_splits": 2}, [X, ints(-1, -1), one(1)], "do not add up"),
    ("SLICE", {}, [X, ints(0, 2, 0), ints(2, 2, 4)], "leave axis 1"),
    ("STRIDED_SLICE", {}, [X, ints(0), ints(1), ints(0)], "stride 0 is 0"),
    ("STRIDED_SLICE", {"shrink_axis_mask": 1}, [X, ints(2), ints(3), ints(1)], "outside axis 0"),
    ("STRIDED_SLICE", {}, [X, ints(0, 0, 0, 0), ints(1, 1, 1, 1), ints(1, 1, 1, 1)], "rank 3"),
    ("DYNAMIC_UPDATE_SLICE", {}, [X, TensorType(F, (2, 4, 4)), ints(0, 0, 0)], "sizes within it"),
    ("GATHER", {"axis": 3}, [X, ints(0)], "axis 3"),
    ("GATHER", {"batch_dims": 1}, [X, ints(0)], "batch_dims is 1"),
    ("GATHER", {}, [X, TensorType(F, (2,))], "expected integers"),
    ("GATHER_ND", {}, [X, TensorType(I, (2, 4))], "1 to 3"),
    ("SCATTER_ND", {}, [TensorType(I, (2, 1)), TensorType(F, (2, 3)), ints(5, 4)], "expected float32 2×4"),
    ("EMBEDDING_LOOKUP", {}, [TensorType(I, (2, 2)), X], "expected rank 1"),
    ("ONE_HOT", {}, [TensorType(I, (2,)), one(-1), TensorType(F, ()), TensorType(F, ())], "depth is -1"),
    ("SELECT", {}, [TensorType(B, (3,)), X, X], "a scalar"),
    ("SELECT_V2", {}, [X, X, X], "expected BOOL"),
    ("UNIQUE", {}, [X], "expected rank 1"),
    ("REVERSE_V2", {}, [X, ints(3)], "axis 3"),
    ("REVERSE_SEQUENCE", {"seq_dim": 0}, [X, TensorType(I, (2,))], "both axis 0"),
    ("REVERSE_SEQUENCE", {}, [X, TensorType(I, (3,))], "one for each of axis 0"),
    ("SEGMENT_SUM", {}, [X, TensorType(I, (3,))], "one per row"),
    ("FILL", {}, [ints(2, -1), TensorType(F, ())], "at least 0"),
    ("RANGE", {}, [one(0), one(3), one(0)], "delta is 0"),
    ("EQUAL", {}, [X, TensorType(I, (4,))], "insert a CAST"),
    ("LOGICAL_AND", {}, [X, X], "expected BOOL"),
    ("STABLEHLO_RNG_BIT_GENERATOR", {}, [ints(1, 2)], "expected 3 numbers of UINT64"),
    ("CAST", {"out_data_type": DType.STRING}, [X], "STRING"),
]


@pytest.mark.parametrize(
    ("name", "options", "inputs", "said"),
    [pytest.param(*case, id=f"{case[0]}-{i}") for i, case in enumerate(REFUSED)],
)
def test_contradictions_are_refused(
    name: str, options: dict[str, Any], inputs: list[TensorType], said: str
) -> None:
    with pytest.raises(ModelError) as refusal:
        make(name, **options).infer_types(inputs)
    assert str(refusal.value).startswith(name)
    assert said in str(refusal.value)


@pytest.mark.parametrize(
    ("name", "inputs", "said"),
    [
        ("GATHER", ([1.0, 2.0], np.array([2])), "index 2 is outside the axis of 2 elements"),
        ("GATHER", ([1.0, 2.0], np.array([-1])), "index -1"),
        ("EMBEDDING_LOOKUP", (np.array([7]), np.ones((3, 2))), "expected 0 to 2"),
        ("GATHER_ND", (np.ones((2, 3)), np.array([[1, 3]])), "index 3"),
        ("SCATTER_ND", (np.array([[4]]), [1.0], np.array([4])), "index 4"),
        ("DIV", (np.array([1]), np.array([0])), "divided by 0"),
        ("FLOOR_MOD", (np.array([1]), np.array([0])), "divided by 0"),
        ("POW", (np.array([2]), np.array([-1])), "raised to -1"),
        ("SEGMENT_SUM", ([1.0, 2.0], np.array([1, 0])), "ascending"),
        ("UNSORTED_SEGMENT_SUM", ([1.0], np.array([5]), np.array(2)), "less than 2"),
        ("REVERSE_SEQUENCE", (np.ones((1, 3)), np.array([4])), "expected 0 to 3"),
    ],
)
def test_values_out_of_range_are_refused(name: str, inputs: tuple[Any, ...], said: str) -> None:
    with pytest.raises(DataError, match=said):
        run(name, *inputs)


@pytest.mark.parametrize(
    ("seeds", "rows"), [((1, 1), (2, (1 << 12) + 1)), ((1 << 10, 4), (5, 1 << 10))], ids=["rows", "seeds"]
)
def test_more_than_can_be_hashed_in_time_is_refused(seeds: tuple[int, int], rows: tuple[int, int]) -> None:
    op = make("LSH_PROJECTION")
    with pytest.raises(ModelError, match="are to be hashed for"):
        op.infer(TensorType(F, seeds), TensorType(I, rows))
    with pytest.raises(ModelError, match="are to be hashed for"):
        op.forward(np.zeros(seeds, np.float32), np.zeros(rows, np.int32))


def test_options_that_make_no_size_are_refused() -> None:
    op = Foreign.of("RoiAlign", {"output_height": 0.5, "output_width": 2})
    with pytest.raises(ModelError, match=r"its options make a result .*; convert the model anew"):
        op.infer(TensorType(F, (1, 4, 4, 3)), TensorType(F, (2, 4)), TensorType(I, (2,)))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_nothing_overflows(dtype: type[np.floating[Any]]) -> None:
    far = np.array([-1e4, -200, 0, 200, 1e4], dtype)
    np.testing.assert_array_equal(run("LOGISTIC", far), np.array([0, np.exp(dtype(-200)), 0.5, 1, 1], dtype))
    np.testing.assert_array_equal(run("ELU", far)[[0, 4]], [-1, 1e4])
    np.testing.assert_array_equal(run("SOFTMAX", far), [0, 0, 0, 0, 1])
    np.testing.assert_array_equal(run("LOG_SOFTMAX", far), far - far.max())
    np.testing.assert_array_equal(run("GELU", far)[[0, 4]], [0, 1e4])
    np.testing.assert_array_equal(run("GELU", far, approximate=True)[[0, 4]], [0, 1e4])
    np.testing.assert_array_equal(run("HARD_SWISH", far)[[0, 4]], [0, 1e4])


@pytest.mark.parametrize(
    "name", ["RELU", "RELU6", "RELU_N1_TO_1", "MAXIMUM", "MINIMUM", "REDUCE_MAX", "REDUCE_MIN"]
)
def test_not_a_number_passes_bounds(name: str) -> None:
    second = {
        "MAXIMUM": [np.ones(2)],
        "MINIMUM": [np.ones(2)],
        "REDUCE_MAX": [np.array([], int)],
        "REDUCE_MIN": [np.array([], int)],
    }
    assert np.isnan(run(name, np.array([np.nan, 3.0]), *second.get(name, []))[0])


def test_gradients_of_ties() -> None:
    """MAXIMUM and MINIMUM give a tie to their first operand, reductions share it."""
    dy, same = np.array([2.0]), np.array([5.0])
    for name in ("MAXIMUM", "MINIMUM"):
        op: Any = make(name)
        assert op.grad_x1(dy, same, same) == 2
        assert op.grad_x2(dy, same, same) == 0
    reduce_max: Any = make("REDUCE_MAX")
    shared = reduce_max.grad_x(np.array(6.0), np.array([1.0, 4.0, 4.0, 4.0]), np.array([0]), np.array(4.0))
    np.testing.assert_array_equal(shared, [0, 2, 2, 2])


def test_gradients_at_kinks() -> None:
    """Intervals are open, as in TensorFlow: nothing passes at the bound itself."""
    ends = {"RELU": [0.0], "RELU6": [0.0, 6.0], "RELU_N1_TO_1": [-1.0, 1.0], "RELU_0_TO_1": [0.0, 1.0]}
    for name, bounds in ends.items():
        op: Any = make(name)
        np.testing.assert_array_equal(op.grad_x(np.ones(len(bounds)), np.array(bounds)), 0)


def test_power_of_zero_has_a_gradient() -> None:
    op: Any = make("POW")
    zero, dy = np.array([0.0]), np.array([1.0])
    for exponent, slope in ((0.0, 0.0), (1.0, 1.0), (2.0, 0.0)):
        assert op.grad_x1(dy, zero, np.array([exponent])) == slope
        assert op.grad_x2(dy, zero, np.array([0.0])) == 0


def test_coordinates_of_no_axis_mean_the_whole_table() -> None:
    table, nothing = np.arange(6.0).reshape(2, 3), np.zeros((4, 0), int)
    np.testing.assert_array_equal(run("GATHER_ND", table, nothing), np.stack([table] * 4))
    op: Any = make("GATHER_ND")
    np.testing.assert_array_equal(op.grad_table(np.ones((4, 2, 3)), nothing, (2, 3)), np.full((2, 3), 4))


def test_integers_divide_towards_zero_or_down() -> None:
    x, d = np.array([7, -7, 7, -7, -6]), np.array([2, 2, -2, -2, 3])
    np.testing.assert_array_equal(run("DIV", x, d), [3, -3, -3, 3, -2])
    np.testing.assert_array_equal(run("FLOOR_DIV", x, d), [3, -4, -4, 3, -2])
    np.testing.assert_array_equal(run("FLOOR_MOD", x, d), [1, 1, -1, -1, 0])


def test_what_a_type_says_is_known_without_running() -> None:
    (shape,) = make("SHAPE").infer_types([X])
    np.testing.assert_array_equal(shape.value, [2, 3, 4])
    (rank,) = make("RANK").infer_types([TensorType(F, (-1, 2))])
    assert rank.value == 2
    assert make("SHAPE").infer_types([TensorType(F, (-1, 2))])[0].value is None


def test_an_open_batch_runs_through_a_reshape() -> None:
    (type_,) = make("RESHAPE").infer_types([TensorType(F, (-1, 2, 3)), ints(-1, 6)])
    assert type_.shape == (-1, 6)
    (unknown,) = make("RESHAPE").infer_types([X, TensorType(I, (2,))])
    assert unknown.shape == (-1, -1)


def test_batch_norm_is_its_definition() -> None:
    """The operator is only written out by others in files; its own numpy must say the same."""
    rng = np.random.default_rng(0)
    x, gamma, beta, mean = (rng.normal(size=shape) for shape in ((4, 3), 3, 3, 3))
    variance = rng.uniform(0.5, 2, 3)
    found = BatchNorm(0.1).forward(x, gamma, beta, mean, variance)
    np.testing.assert_allclose(found, (x - mean) / np.sqrt(variance + 0.1) * gamma + beta, rtol=1e-12)


def test_a_graph_within_has_outputs_of_what_it_is_given() -> None:
    """Not of what its tensors say, which is what the file was made for."""
    x = Tensor("x", TensorType(DType.FLOAT32, (2, 3)))
    five = constant(np.ones(5, np.float32), "five")
    graph = Graph("within", [x])
    graph.outputs = [graph.emit(REGISTRY["RELU"](), x), five]
    found = infer_graph(graph, [TensorType(DType.FLOAT32, (7, 3))])
    assert [type_.shape for type_ in found] == [(7, 3), (5,)]
