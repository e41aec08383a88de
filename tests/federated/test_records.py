"""What travels between clients and server."""

from __future__ import annotations

from io import BytesIO

import numpy as np
import pytest

import circle_train as ct
from circle_train.errors import DataError

pytest.importorskip("flwr")

from fleets import CONFIG, MODEL
from flwr.app import Array, ArrayRecord

from circle_train import federated


def session(**changes: object) -> ct.TrainSession:
    return ct.TrainSession(MODEL, CONFIG.replace(**changes))


def test_a_record_holds_trained_parameters_and_nothing_else() -> None:
    last = session(trainable=("last", 2))
    record = federated.arrays(last)
    assert list(record) == list(last.parameters.trainable())
    assert 0 < len(record) < len(last.parameters)
    for name, array in record.items():
        found = array.numpy()
        assert found.dtype == np.float32 and found.flags.c_contiguous
        np.testing.assert_array_equal(found, last.parameters[name])


def test_records_are_flowers_own_bytes() -> None:
    one = session()
    for name, array in federated.arrays(one).items():
        theirs = Array(np.array(one.parameters[name]))
        assert (array.dtype, array.shape, array.stype, array.data) == (
            theirs.dtype,
            theirs.shape,
            theirs.stype,
            theirs.data,
        )


def test_loading_gives_the_other_session_the_same_weights() -> None:
    one, other = session(), session()
    one.train_step(np.ones((4, 6), np.float32), np.ones((4, 5), np.float32))
    federated.load(other, federated.arrays(one))
    for name in one.parameters:
        np.testing.assert_array_equal(one.parameters[name], other.parameters[name])


def spoiled(record: ArrayRecord, how: str) -> ArrayRecord:
    found = {name: array.numpy().copy() for name, array in record.items()}
    first, *_, last = found
    if how == "missing":
        del found[last]
    elif how == "stranger":
        found["stranger"] = np.ones(1, np.float32)
    elif how == "shape":
        found[last] = found[last][..., :-1]
    elif how == "integers":
        found[last] = found[last].astype(np.int32)
    elif how == "nan":
        found[last].flat[0] = np.nan
    elif how == "overflow":
        found[last] = found[last].astype(np.float64) + 1e300
    found[first] = found[first] + 1
    return ArrayRecord({name: Array(array) for name, array in found.items()})


@pytest.mark.parametrize(
    ("how", "says"),
    [
        ("missing", "is missing"),
        ("stranger", "'stranger' is none of the"),
        ("shape", "expected float32"),
        ("integers", "is int32"),
        ("nan", "1 numbers that are not finite"),
        ("overflow", "not finite"),
    ],
)
def test_a_record_that_does_not_fit_changes_nothing(how: str, says: str) -> None:
    one = session()
    before = {name: array.copy() for name, array in one.parameters.items()}
    with pytest.raises(DataError, match=says):
        federated.load(one, spoiled(federated.arrays(one), how))
    for name, array in before.items():
        np.testing.assert_array_equal(one.parameters[name], array)


def test_damaged_bytes_are_refused_by_name() -> None:
    one = session()
    record = federated.arrays(one)
    name = next(iter(record))
    record[name] = Array(record[name].dtype, record[name].shape, record[name].stype, b"nonsense")
    with pytest.raises(DataError, match=f"array '{name}' cannot be read"):
        federated.load(one, record)


@pytest.mark.parametrize("dtype", ["<f4", "<U100000000"])
def test_bytes_that_announce_more_than_is_wanted_take_no_memory(dtype: str) -> None:
    one = session()
    record = federated.arrays(one)
    name = next(iter(record))
    file = BytesIO()
    np.lib.format.write_array_header_1_0(file, {"descr": dtype, "fortran_order": False, "shape": (10**13,)})
    for shape in (record[name].shape, (10**13,)):
        record[name] = Array("float32", shape, record[name].stype, file.getvalue() + bytes(64))
        with pytest.raises(DataError, match=rf"array '{name}' is float32 \(10000000000000,\), expected"):
            federated.load(one, record)


@pytest.mark.parametrize("word", [b"{" * 60, b"(" * 60, b"\0" * 9, b"__import__('os').abort()"])
def test_headers_that_are_no_python_are_refused(word: bytes) -> None:
    """numpy reads them by Python's own parser, which raises errors of its own kinds."""
    one = session()
    record = federated.arrays(one)
    name = next(iter(record))
    known = record[name]
    broken = known.data[:11] + word + known.data[11 + len(word) :]
    record[name] = Array(known.dtype, known.shape, known.stype, broken)
    with pytest.raises(DataError, match=f"array '{name}' cannot be read"):
        federated.load(one, record)


def test_doubles_are_taken_as_floats() -> None:
    one = session()
    wide = {n: Array(a.numpy().astype(np.float64)) for n, a in federated.arrays(one).items()}
    federated.load(one, ArrayRecord(wide))


def test_flat_vectors_go_there_and_back() -> None:
    one, other = session(), session()
    one.train_step(np.ones((4, 6), np.float32), np.ones((4, 5), np.float32))
    vector = federated.flat(federated.arrays(one))
    np.testing.assert_array_equal(vector, one.parameters.flat())
    federated.load(other, federated.from_flat(other, vector))
    np.testing.assert_array_equal(other.parameters.flat(), vector)
    with pytest.raises(DataError, match="the trained parameters take"):
        federated.from_flat(other, vector[1:])
