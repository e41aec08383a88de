"""numpy's products keep to the number of threads that a session is given."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import circle_train as ct
from circle_train.backends import blas
from circle_train.ops.base import Op
from circle_train.ops.registry import REGISTRY

pytestmark = pytest.mark.skipif(blas.threads() is None, reason="numpy's BLAS is none whose threads we know")


@pytest.fixture
def two_threads() -> Any:
    """numpy uses two, whatever the machine has."""
    found = blas.functions()
    assert found is not None
    put, get = found
    before = get()
    put(2)
    yield
    put(before)


@pytest.mark.usefixtures("two_threads")
def test_the_least_of_several_limits_holds_and_the_last_one_restores() -> None:
    with blas.limited(3):
        assert blas.threads() == 2
        with blas.limited(1):
            assert blas.threads() == 1
            with blas.limited(2):
                assert blas.threads() == 1
        assert blas.threads() == 2
    assert blas.threads() == 2


@pytest.mark.usefixtures("two_threads")
@pytest.mark.parametrize(
    ("backend", "threads", "expected"),
    [("reference", 1, 1), ("reference", 2, 2), ("reference", None, 2), ("auto", 2, 1)],
)
def test_what_runs_in_numpy_uses_as_many_threads_as_the_session(
    backend: str, threads: int | None, expected: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    dense: Any = REGISTRY["FULLY_CONNECTED"]
    seen: list[int | None] = []
    plain = Op.compute

    def compute(self: Op, inputs: Any) -> Any:
        if isinstance(self, dense):
            seen.append(blas.threads())
        return plain(self, inputs)

    infer = ct.InferenceSession("tests/data/mlp.circle", backend=backend, threads=threads)
    infer.backend.bind = lambda *args: None  # type: ignore[method-assign]
    if backend == "reference":
        del infer.backend.bind
    monkeypatch.setattr(Op, "compute", compute)
    infer(np.zeros((3, 6), np.float32))
    assert seen
    assert set(seen) == {expected}
    assert blas.threads() == 2
