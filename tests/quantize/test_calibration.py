"""What is observed of activations: in which batches, and what range is taken of it."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
from networks import make, new_input

from circle_train import format
from circle_train.ir import DType, Graph, Tensor, TensorType
from circle_train.quantize.calibrate import BINS, Observed, between
from circle_train.quantize.plan import Plan
from circle_train.quantize.scales import of_pixels
from circle_train.session.shipping import ship


@pytest.mark.parametrize("percentile", [90.0, 99.0])
def test_the_outermost_numbers_are_left_out_on_either_side(percentile: float) -> None:
    values = np.random.default_rng(0).normal(5, 2, 50_000)
    one = Observed(Tensor("x", TensorType(DType.FLOAT32, (50_000,))))
    one.see(values)
    one.count(values)
    wanted = np.percentile(values, [100 - percentile, percentile])
    np.testing.assert_allclose(between(one, percentile), wanted, rtol=0, atol=2 * np.ptp(values) / BINS)


@pytest.mark.parametrize(("room", "batch"), [(1 << 30, 32), (5 * 5 * 4, 5), (1, 1)])
def test_what_is_observed_runs_in_batches_that_have_room(
    room: int, batch: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """32 samples at a time, or as many as there is room for of what is looked at."""
    monkeypatch.setattr(ship, "OBSERVED_BYTES", room)
    module, asked = format.read("tests/data/mlp.circle"), []

    def samples(size: int) -> Iterator[list[np.ndarray]]:
        asked.append(size)
        yield [np.zeros((size, 6), np.float32)]

    (found,) = ship.observed(module, samples, module.main.outputs, 1)
    assert asked == [batch] and len(found[0]) == batch


def test_numbers_at_the_ends_of_the_range_are_counted() -> None:
    """Their distance is more than a float32 holds."""
    values = np.array([-3e38, 0, 3e38, 3e38], np.float32)
    one = Observed(Tensor("x", TensorType(DType.FLOAT32, (4,))))
    one.see(values)
    one.count(values)
    assert one.counts.sum() == 4 and one.counts[-1] == 2


@pytest.mark.parametrize("shares", [False, True])
def test_an_input_that_shares_its_scale_is_not_that_of_pixels(shares: bool) -> None:
    graph = Graph("net", [new_input("x", 1, 4, 4, 3)])
    y = graph.emit(make("RELU6"), graph.inputs[0])
    graph.outputs = [graph.emit(make("CONCATENATION", axis=3), graph.inputs[0], y) if shares else y]
    plan, pixels = Plan(graph, DType.INT8), of_pixels(127.5, 127.5)
    assert pixels is not None
    plan.fix(graph.inputs[0], pixels)
    assert bool(plan.fixed) != shares
