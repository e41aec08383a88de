"""Data: what is accepted, what is refused and with which words, and how batches are cut."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import circle_train as ct
from circle_train.data.coercion import coerce, count_samples
from circle_train.data.dataset import Dataset, Stream, check_data, open_data, order_of_epoch, training_count
from circle_train.errors import ConfigError, DataError
from circle_train.ir import DType, Tensor, TensorType

MODEL = Path(__file__).parents[1] / "data" / "mlp.circle"

X = Tensor("x", TensorType(DType.FLOAT32, (4, 3)))

IMAGE = Tensor("image", TensorType(DType.FLOAT32, (4, 2, 2, 1)))

TOKENS = Tensor("tokens", TensorType(DType.INT32, (4, 5)))

BYTES = Tensor("bytes", TensorType(DType.UINT8, (4, 3)))

ONE_HOT = Tensor("target(out)", TensorType(DType.FLOAT32, (4, 6)))

LABELS = Tensor("target(out)", TensorType(DType.INT32, (4,)))

NUMBERS = np.arange(12).reshape(4, 3)


def one(value: Any, tensor: Tensor) -> Any:
    (array,) = coerce(value, [tensor], "x")
    assert array.dtype == tensor.dtype.numpy
    assert array.flags.c_contiguous
    assert array.shape == tensor.shape
    return array


@pytest.mark.parametrize(
    "value",
    [
        NUMBERS.astype(np.float32),
        NUMBERS.astype(np.float64),
        NUMBERS.astype(np.float16),
        NUMBERS.astype(np.int64),
        NUMBERS.astype(np.uint8),
        NUMBERS.astype(">f4"),
        np.asfortranarray(NUMBERS.astype(np.float32)),
        NUMBERS[:, ::-1].astype(np.float32)[:, ::-1],
        np.repeat(NUMBERS, 2, 0)[::2],
        np.ma.masked_array(NUMBERS),
        NUMBERS.tolist(),
        [NUMBERS],
        (NUMBERS,),
        {"x": NUMBERS},
        NUMBERS.reshape(4, 3, 1),
    ],
    ids=lambda value: f"{type(value).__name__}-{getattr(value, 'dtype', '')}-{getattr(value, 'strides', '')}",
)
def test_numbers_in_any_form_mean_the_same(value: Any) -> None:
    np.testing.assert_array_equal(one(value, X), NUMBERS)


def test_other_conversions_that_lose_nothing() -> None:
    np.testing.assert_array_equal(one(NUMBERS > 5, X), NUMBERS > 5)
    np.testing.assert_array_equal(one(np.array([0.0, 3.0, 1.0, 5.0]), LABELS), [0, 3, 1, 5])
    np.testing.assert_array_equal(one([[0], [3], [1], [5]], LABELS), [0, 3, 1, 5])
    np.testing.assert_array_equal(one(NUMBERS.astype(float), BYTES), NUMBERS)
    assert one(np.zeros((4, 2, 2)), IMAGE).shape == (4, 2, 2, 1)
    assert one(np.full((4, 3), 1e-300), X).max() == 0
    assert np.isnan(one(np.full((4, 3), np.nan), X)).all()
    assert np.isinf(one(np.full((4, 3), np.inf), X)).all()


def test_an_array_as_it_should_be_is_not_copied_and_costs_little() -> None:
    array, tensors = NUMBERS.astype(np.float32), [X]
    assert coerce(array, tensors, "x")[0] is array
    times = []
    for _ in range(20):
        start = time.perf_counter()
        for _ in range(500):
            coerce(array, tensors, "x")
        times.append((time.perf_counter() - start) / 500)
    assert min(times) < 10e-6


def test_several_inputs_come_as_a_list_or_by_name() -> None:
    for value in ([NUMBERS, np.ones((4, 5))], {"tokens": np.ones((4, 5)), "x": NUMBERS}):
        x, tokens = coerce(value, [X, TOKENS], "x")
        np.testing.assert_array_equal(x, NUMBERS)
        np.testing.assert_array_equal(tokens, np.ones((4, 5)))


@pytest.mark.parametrize(
    ("value", "tensors", "message"),
    [
        (np.zeros((4, 5)), [X], "x: 'x' has shape 4×5, expected 4×3"),
        (np.zeros((5, 3)), [X], "x: 'x' has shape 5×3, expected 4×3"),
        (np.zeros(3), [X], "x: 'x' has shape 3, expected 4×3; add a first axis for the samples"),
        (np.zeros((4, 3), complex), [X], "element type complex128, expected numbers"),
        (np.array([["a"] * 3] * 4), [X], "element type <U1, expected numbers"),
        (np.array([[None] * 3] * 4), [X], "element type object, expected numbers"),
        ([[1, 2, 3], [4]], [X], "cannot be read as an array"),
        (np.ma.masked_equal(NUMBERS, 3), [X], "has masked elements"),
        (np.full((4, 3), 1e300), [X], r"holds 1e\+300 at position \(0, 0\), which float32 cannot hold"),
        (NUMBERS + 2**24, [X], r"holds 16777217 at position \(0, 1\), which float32 cannot hold"),
        (np.full((4, 5), 2**31), [TOKENS], r"holds 2147483648 at position \(0, 0\), which int32 cannot hold"),
        (np.full((4, 5), 0.5), [TOKENS], r"holds 0.5 at position \(0, 0\), which int32 cannot hold"),
        (np.full(4, np.nan), [LABELS], "holds nan at position 0, which int32 cannot hold"),
        (NUMBERS.astype(np.int8) - 1, [BYTES], r"holds -1 at position \(0, 0\), which uint8 cannot hold"),
        (NUMBERS + 300, [BYTES], r"holds 300 at position \(0, 0\), which uint8 cannot hold"),
        (None, [X], "x is missing: give 'x' of float32 4×3"),
        (
            NUMBERS,
            [X, TOKENS],
            "x is one ndarray, expected 2 arrays: 'x' of float32 4×3, 'tokens' of int32 4×5",
        ),
        ([NUMBERS], [X, TOKENS], "x holds 1 arrays, expected 2"),
        ([NUMBERS, NUMBERS], [X], "x holds 2 arrays, expected 1: 'x' of float32 4×3"),
        ({"y": NUMBERS}, [X], "x holds 'y'; expected exactly 'x'"),
        ({"x": NUMBERS, "z": 1}, [X], "x holds 'x', 'z'; expected exactly 'x'"),
        (np.zeros(4), [ONE_HOT], "'out' has shape 4, expected 4×6; give one-hot rows of 6, or use Sparse"),
        (
            np.zeros((4, 6)),
            [LABELS],
            "'out' has shape 4×6, expected 4; give class numbers, or use Categorical",
        ),
    ],
)
def test_what_would_change_its_meaning_is_refused(value: Any, tensors: list[Tensor], message: str) -> None:
    with pytest.raises(DataError, match=message):
        coerce(value, tensors, "x")


def test_data_sets_cut_batches_and_keep_the_last_small_one() -> None:
    data = open_data(np.arange(30).reshape(10, 3), np.arange(10), [X], [LABELS])
    assert isinstance(data, Dataset)
    assert [len(x[0]) for x, _ in data.batches(4)] == [4, 4, 2]
    assert (data.steps(4), data.steps(5)) == (3, 2)
    order = order_of_epoch(10, seed=1, epoch=0)
    seen = np.concatenate([y[0] for _, y in data.batches(4, order)])
    np.testing.assert_array_equal(seen, order)
    assert sorted(seen) == list(range(10))
    np.testing.assert_array_equal(
        np.concatenate([y[0] for _, y in data.batches(4, order, start=1)]), order[4:]
    )
    x, y = next(data.batches(4, order))
    np.testing.assert_array_equal(x[0][:, 0], 3 * y[0])


def test_the_order_is_a_function_of_seed_and_epoch() -> None:
    np.testing.assert_array_equal(order_of_epoch(50, 3, 1), order_of_epoch(50, 3, 1))
    assert not np.array_equal(order_of_epoch(50, 3, 1), order_of_epoch(50, 3, 2))
    assert not np.array_equal(order_of_epoch(50, 3, 1), order_of_epoch(50, 4, 1))


@pytest.mark.parametrize(
    ("samples", "fraction", "train"),
    [
        (1000, 0.2, 800),
        (10, 0.9, 1),
        (10, 0.0, 10),
        (10, 0.25, 7),
        (100, 0.29, 71),
        (7, 1 / 3, 4),
        (3, 0.1, 2),
    ],
)
def test_validation_splits_count_exactly(samples: int, fraction: float, train: int) -> None:
    assert training_count(samples, fraction) == train


def test_the_tail_validates() -> None:
    data = open_data(np.zeros((10, 3)), np.arange(10), [X], [LABELS])
    train, validation = data.split(0.2)
    assert isinstance(train, Dataset)
    assert isinstance(validation, Dataset)
    np.testing.assert_array_equal(train.targets[0], range(8))
    np.testing.assert_array_equal(validation.targets[0], [8, 9])
    assert data.split(0.0) == (data, None)
    with pytest.raises(
        ConfigError, match=r"validation_split is 1.0, expected a number from 0 to less than 1"
    ):
        data.split(1.0)
    with pytest.raises(DataError, match=r"validation_split 0.99 of 10 samples leaves none to train"):
        data.split(0.99)


@pytest.mark.parametrize(
    ("x", "y", "message"),
    [
        (np.zeros((0, 3)), np.zeros(0), "the data are empty: give at least one sample"),
        ([], [], "the data are empty"),
        (np.zeros((4, 3)), np.zeros(5), "x holds 4 samples and y 5; expected the same number everywhere"),
        (np.zeros((4, 3)), None, "y is missing: give labels"),
        (np.zeros((4, 7)), np.zeros(4), "x: 'x' has shape 4×7, expected N×3"),
        (np.float32(3), np.zeros(4), "x: 'x' is a single number"),
        (np.zeros((4, 3), complex), np.zeros(4), "element type complex128"),
        ("data.xyz", np.zeros(4), "'data.xyz' ends in '.xyz', expected one of .*.npy"),
        ("missing.npy", np.zeros(4), "'missing.npy' cannot be read: .*No such file"),
    ],
)
def test_data_sets_that_do_not_fit_are_refused(x: Any, y: Any, message: str) -> None:
    with pytest.raises(DataError, match=message):
        open_data(x, y, [X], [LABELS])


def test_streams_give_their_own_batches() -> None:
    batches = [(np.zeros((size, 3)), np.zeros(size)) for size in (4, 2)]
    stream = open_data(batches, None, [X], [LABELS])
    assert isinstance(stream, Stream)
    assert stream.steps(32) == 2
    for _ in range(2):
        assert [len(x[0]) for x, _ in stream.batches(32)] == [4, 2]
    assert [len(x[0]) for x, _ in stream.batches(32, start=1)] == [2]

    def generate() -> Iterator[Any]:
        yield from batches

    once = open_data(generate(), None, [X], [LABELS])
    assert once.steps(32) is None
    assert len(list(once.batches(32))) == 2
    with pytest.raises(DataError, match="a generator can be walked only once"):
        list(once.batches(32))
    with pytest.raises(DataError, match=r"validation_split is 0.2, but a stream cannot be split"):
        stream.split(0.2)
    with pytest.raises(DataError, match=r"batch 1 of the stream is a int, expected a pair \(x, y\)"):
        list(open_data(iter([3]), None, [X], [LABELS]).batches(32))


def test_a_list_of_pairs_is_a_stream_only_where_labels_are_wanted() -> None:
    pairs = [(1.0, 2.0), (3.0, 4.0)]
    two = Tensor("x", TensorType(DType.FLOAT32, (4, 2)))
    data = open_data(pairs, None, [two], [])
    assert isinstance(data, Dataset)
    np.testing.assert_array_equal(data.inputs[0], pairs)


def test_what_a_later_step_would_refuse_is_refused_before_anything_runs() -> None:
    session = ct.TrainSession(MODEL, ct.TrainConfig("sparse_categorical_crossentropy", batch_size=4))
    program, losses = session.program, session.config.losses_for(1)
    labels = np.array([0, 1, 2, 3, 4, 4, 0, 5])
    data = open_data(np.zeros((8, 6)), labels, program.inputs, program.targets)
    with pytest.raises(DataError, match="label 5 at position 7: expected 0 … 4"):
        check_data(data, program, losses)
    check_data(open_data(np.zeros((8, 6)), labels % 5, program.inputs, program.targets), program, losses)
    once = open_data(iter([(np.zeros((4, 6)), labels[:4])]), None, program.inputs, program.targets)
    check_data(once, program, losses, passes=1)
    with pytest.raises(DataError, match="can be walked only once, expected 2 epochs of batches"):
        check_data(once, program, losses, passes=2)


@pytest.mark.parametrize(
    ("value", "tensors", "count"),
    [
        (np.zeros((7, 3)), [X], 7),
        ([[1, 2, 3], [4, 5, 6]], [X], 2),
        ([np.zeros((5, 3))], [X], 5),
        ({"x": np.zeros((6, 3))}, [X], 6),
        ([np.zeros((2, 3)), np.zeros((2, 5))], [X, TOKENS], 2),
    ],
)
def test_samples_are_counted_in_any_form(value: Any, tensors: list[Tensor], count: int) -> None:
    assert count_samples(value, tensors, "x") == count


@pytest.mark.parametrize("value", [np.zeros((0, 3)), 3.0, []])
def test_no_samples_are_refused(value: Any) -> None:
    with pytest.raises(DataError, match="expected at least one sample"):
        count_samples(value, [X], "x")
