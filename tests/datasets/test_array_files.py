"""Arrays in files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from circle_train.data.coercion import coerce
from circle_train.data.dataset import Dataset, open_data
from circle_train.data.stored import reads
from circle_train.errors import DataError
from circle_train.ir import DType, Tensor, TensorType
from circle_train.ir.mapped import mapped

X = Tensor("x", TensorType(DType.FLOAT32, (4, 3)))

TOKENS = Tensor("tokens", TensorType(DType.INT32, (4, 5)))

LABELS = Tensor("target(out)", TensorType(DType.INT32, (4,)))


def test_files_are_mapped_and_sliced(tmp_path: Path) -> None:
    large = np.arange(3 << 17, dtype=np.float32).reshape(-1, 3)
    np.save(tmp_path / "large.npy", large)
    data = open_data(tmp_path / "large.npy", np.zeros(1 << 17), [X], [LABELS])
    assert isinstance(data, Dataset)
    assert mapped(data.inputs[0]) is not None
    ((first, *_), _) = next(data.batches(4))
    assert mapped(first) is not None
    assert coerce(first, [X], "x")[0].tolist() == large[:4].tolist()


def test_small_files_are_read_by_their_arrays_names(tmp_path: Path) -> None:
    x, y = np.arange(30, dtype=np.float32).reshape(10, 3), np.arange(10)
    np.save(tmp_path / "x.npy", x)
    np.save(tmp_path / "turned.npy", np.asfortranarray(x))
    np.savez(tmp_path / "y.npz", y)
    for name in ("x", "turned"):
        data = open_data(tmp_path / f"{name}.npy", str(tmp_path / "y.npz"), [X], [LABELS])
        assert isinstance(data, Dataset)
        assert mapped(data.inputs[0]) is None
        np.testing.assert_array_equal(data.inputs[0], x)
    np.savez(tmp_path / "both.npz", x=x, y=y)
    both = open_data(tmp_path / "both.npz", None, [X], [LABELS])
    np.testing.assert_array_equal(both.targets[0], y)
    np.savez(tmp_path / "named.npz", tokens=np.zeros((10, 5)), x=x)
    named = open_data(tmp_path / "named.npz", y, [X, TOKENS], [LABELS])
    assert [array.shape for array in named.inputs] == [(10, 3), (10, 5)]
    np.savez(tmp_path / "ordered.npz", x, np.zeros((10, 5)))
    ordered = open_data(tmp_path / "ordered.npz", y, [X, TOKENS], [LABELS])
    assert [array.shape for array in ordered.inputs] == [(10, 3), (10, 5)]
    separate = open_data([tmp_path / "x.npy", np.zeros((10, 5))], y, [X, TOKENS], [LABELS])
    np.testing.assert_array_equal(separate.inputs[0], x)


@pytest.mark.parametrize("name", ["bad.npy", "bad.npz"])
def test_damaged_files_are_refused(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_bytes(b"\x93NUMPY\x01\x00v\x00{'descr'")
    with pytest.raises(DataError, match=f"{name}' cannot be read"):
        open_data(tmp_path / name, np.zeros(4), [X], [LABELS])
    np.save(tmp_path / "objects.npy", np.array([{}], object), allow_pickle=True)
    with pytest.raises(DataError, match=r"objects.npy' holds elements of type object, expected numbers"):
        open_data(tmp_path / "objects.npy", np.zeros(4), [X], [LABELS])


def test_a_reader_for_another_suffix_can_be_added(tmp_path: Path) -> None:
    @reads(".ones")
    def read_ones(path: Path, tensors: Any) -> Any:
        return np.ones((int(path.read_text(encoding="utf-8")), *tensors[0].shape[1:]))

    (tmp_path / "five.ones").write_text("5", encoding="utf-8")
    data = open_data(tmp_path / "five.ones", np.zeros(5), [X], [LABELS])
    assert isinstance(data, Dataset)
    assert len(data) == 5
