"""Every kernel where an extent is 0, 1, or beside a vector's or a tile's: what numpy says, and nothing written beside it."""

from __future__ import annotations

import inspect
import itertools
import math
import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest
from native import SAMPLES, Program, run, tiers
from sized import images, integer_functions, integers, numbers, places, products, rows, sweeps
from sized.call import Arrays, Call
from sized.images import Convolution, Pool, Pooled, conv, depthwise, pool
from sized.products import Attention
from sized.rows import Norm, Softmax

from circle_train.backends.native.engine import abi

LANES = {0: 4, 1: 8, 2: 16}
"""Floats of a tier's vector."""
LEAST = {"kernel": 1, "stride": 1, "vectors": 1, "multiplier": 1, "most": 1, "width": 1, "along": 1}
"""Numbers of the operator's, which no extent makes 0."""
USUAL = {"kernel": 2, "stride": 2, "vectors": 1, "multiplier": 2, "h": 5, "w": 6}
MARGIN = 64
"""Elements before and behind an output that must stay as they are."""


def layer_norm(rows: int, cols: int) -> Norm:
    return Norm(rows, cols, True)


def rms_norm(rows: int, cols: int) -> Norm:
    return Norm(rows, cols, False)


BF16 = abi.Bf16.OPERANDS
WAYS: list[tuple[str, Callable[..., Any], Callable[[Any], Call]]] = [
    ("MATMUL", products.matmul, Call.itself),
    ("MATMUL", products.matmul_turned, Call.itself),
    ("MATMUL", products.matmul_bf16, Call.itself),
    ("MATMUL_PANELS", products.fully_connected, Call.itself),
    ("MATMUL_GRAD_W", products.matmul_grad_w, Call.itself),
    ("MATMUL_GRAD_W", products.matmul_grad_w_bf16, Call.itself),
    ("ATTENTION", Attention, Attention.forward),
    ("ATTENTION_GRAD", Attention, Attention.backward),
    ("ATTENTION_GRAD", Attention, Attention.values_alone),
    ("CONV", conv, Convolution.forward),
    ("CONV_PANELS", conv, Convolution.forward),
    ("CONV_GRAD_X", conv, Convolution.grad_x),
    ("CONV_GRAD_W", conv, Convolution.grad_w),
    ("DEPTHWISE", depthwise, Convolution.forward),
    ("DEPTHWISE_GRAD_X", depthwise, Convolution.grad_x),
    ("DEPTHWISE_GRAD_W", depthwise, Convolution.grad_w),
    ("MAX_POOL", pool, Pool.largest),
    ("MAX_POOL_GRAD", pool, lambda p: p.backward(p.sent, index=p.where)),
    ("MAX_POOL_GRAD", pool, lambda p: p.backward(p.sent, x=p.x)),
    ("AVERAGE_POOL", pool, Pool.average),
    ("AVERAGE_POOL_GRAD", pool, lambda p: p.backward(p.shared)),
    ("CONV_POOL", Pooled, Pooled.forward),
    ("POOL_CONV_GRAD_W", Pooled, Pooled.backward),
    ("SOFTMAX", Softmax, lambda s: s.forward(s.y)),
    ("SOFTMAX_GRAD", Softmax, Softmax.grad),
    ("LOG_SOFTMAX", Softmax, lambda s: s.forward(np.log(s.y))),
    ("LOG_SOFTMAX_GRAD", Softmax, Softmax.log_grad),
    ("SOFTMAX_CROSS_ENTROPY", Softmax, Softmax.cross_entropy),
    ("MEAN_SQUARED_ERROR", rows.squared_error, Call.itself),
    ("MEAN_ABSOLUTE_ERROR", rows.absolute_error, Call.itself),
    ("CHAIN", numbers.chained, Call.itself),
    ("CHAIN", numbers.chained_within, Call.itself),
    ("REDUCE", numbers.summed_outside, Call.itself),
    ("REDUCE", numbers.summed_inside, Call.itself),
    ("REDUCE", numbers.largest, Call.itself),
    ("COPY", places.copied, Call.itself),
    ("FILL", places.filled, Call.itself),
    ("GATHER", places.gathered, Call.itself),
    ("SCATTER_ADD", places.scattered, Call.itself),
    ("LAYER_NORM", layer_norm, Norm.forward),
    ("LAYER_NORM_GRAD", layer_norm, Norm.backward),
    ("RMS_NORM", rms_norm, Norm.forward),
    ("RMS_NORM_GRAD", rms_norm, Norm.backward),
    ("BATCH_NORM", rows.batch_norm, Call.itself),
    ("BATCH_NORM_GRAD", rows.batch_norm_gradient, Call.itself),
    ("RESIZE", images.resized, Call.itself),
    ("LSTM", sweeps.Lstm, sweeps.Lstm.forward),
    ("LSTM_GRAD", sweeps.Lstm, sweeps.Lstm.backward),
    ("GRU", sweeps.Gru, sweeps.Gru.forward),
    ("GRU_GRAD", sweeps.Gru, sweeps.Gru.backward),
    ("RNN", sweeps.Rnn, sweeps.Rnn.forward),
    ("RNN_GRAD", sweeps.Rnn, sweeps.Rnn.backward),
    ("SCAN", numbers.scanned, Call.itself),
    ("SCAN", numbers.multiplied, Call.itself),
    ("EXTREME", places.extreme, Call.itself),
    ("TOP", places.top, Call.itself),
    ("TOP", places.top_gradient, Call.itself),
    ("FLAT_INDEX", places.flat_index, Call.itself),
    ("CLIP_FACTOR", numbers.clip_factor, Call.itself),
    ("UPDATE", numbers.updated, Call.itself),
    ("GUARD_FINITE", numbers.guarded, Call.itself),
    ("INT_CONV", integers.int_conv, Call.itself),
    ("INT_CONV", integers.int_conv_of_unsigned_weights, Call.itself),
    ("INT_DEPTHWISE", integers.int_depthwise, Call.itself),
    ("INT_DEPTHWISE", integers.int_depthwise_of_unsigned_weights, Call.itself),
    ("INT_CONV", integers.int_conv_short, Call.itself),
    ("INT_CONV", integers.int_conv_short_of_long_runs, Call.itself),
    ("INT_DEPTHWISE", integers.int_depthwise_short, Call.itself),
    ("INT_POOL", integer_functions.int_mean, Call.itself),
    ("INT_POOL", integer_functions.int_largest, Call.itself),
    ("INT_BINARY", integer_functions.int_binary, Call.itself),
    ("INT_SOFTMAX", integer_functions.int_softmax, Call.itself),
    ("INT_SOFTMAX", integer_functions.int_softmax_short, Call.itself),
    ("INT_TABLE", integer_functions.int_table, Call.itself),
    ("INT_TABLE", integer_functions.int_table_of_floats, Call.itself),
    ("INT_TABLE", integer_functions.int_table_of_shorts, Call.itself),
    ("INT_ROUND", integer_functions.int_round, Call.itself),
    ("INT_ROUND", integer_functions.int_round_to_short, Call.itself),
    ("INT_WIDEN", integer_functions.int_widen, Call.itself),
    ("INT_WIDEN", integer_functions.int_widen_unsigned, Call.itself),
    ("INT_WIDEN", integer_functions.int_widen_of_short, Call.itself),
    ("INT_HYBRID", integers.hybrid, Call.itself),
    ("INT_SAMPLES", integers.int_samples, Call.itself),
    ("INT_SETTLE", integers.int_settle, Call.itself),
]
"""Each kernel, what is made of extents, and which call of it."""
IDS = [f"{kernel}-{i}" for i, (kernel, _, _) in enumerate(WAYS)]


def test_every_kernel_is_here() -> None:
    assert {kernel for kernel, _, _ in WAYS} == {kernel.name for kernel in abi.Kernel}


def about(width: int) -> tuple[int, ...]:
    """The vector's width and the tile's, and what lies beside them."""
    return 0, 1, width - 1, width, width + 1, 2 * width + 1


def sizes(names: list[str], values: tuple[int, ...], changed: int) -> Iterator[dict[str, int]]:
    """All extents as usual but for so many, which take each of the values."""
    usual = {name: USUAL.get(name, 3) for name in names}
    for chosen in itertools.combinations(names, min(changed, len(names))):
        for taken in itertools.product(values, repeat=len(chosen)):
            if all(value >= LEAST.get(name, 0) for name, value in zip(chosen, taken, strict=True)):
                yield usual | dict(zip(chosen, taken, strict=True))


def fenced(array: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """A copy of the array with a margin around it, and the whole."""
    whole = np.full(array.size + 2 * MARGIN, 77, array.dtype)
    inner = whole[MARGIN : MARGIN + array.size].reshape(array.shape)
    inner[...] = array
    return inner, whole


@contextmanager
def panels_of(kernel: str, made: Any, tier: int) -> Iterator[None]:
    """A product whose weights are brought into its order first, and are then nowhere else."""
    if not kernel.endswith("_PANELS"):
        yield
        return
    first = Program([(kernel, made)], 3, tier)
    assert first.run() == 0
    if first.size > 0:
        made.panels = first.scratch
        setattr(made, "w" if kernel.startswith("CONV") else "b", None)
    yield


def check(kernel: str, call: Call, tier: int, tolerance: float = 1e-4) -> None:
    fences = {name: fenced(array) for name, array in call.outputs.items()}
    outputs: Arrays = {name: inner for name, (inner, _) in fences.items()}
    made = call.make(outputs)
    with panels_of(kernel, made, tier):
        assert run(kernel.removesuffix("_PANELS"), made, 3, tier) == 0
    for name, want in call.wants.items():
        inner, whole = fences[name]
        assert (whole[:MARGIN] == 77).all() and (whole[MARGIN + inner.size :] == 77).all(), f"beside {name}"
        np.testing.assert_allclose(inner, want, tolerance, tolerance, err_msg=name)


def extents_of(made: Callable[..., Any]) -> list[str]:
    given = inspect.signature(made).parameters
    return [name for name, of in given.items() if of.default is of.empty]


def try_all(
    way: tuple[str, Callable[..., Any], Callable[[Any], Call]], tier: int, changed: int, most: int
) -> None:
    kernel, made, ask = way
    found = list(sizes(extents_of(made), about(LANES[tier]), changed))
    for given in random.Random(0).sample(found, min(most, len(found))):
        with np.errstate(all="ignore"):
            call = ask(made(**given))
        try:
            check(kernel, call, tier)
        except AssertionError as error:
            raise AssertionError(f"{given}: {error}") from error


@pytest.mark.parametrize("tier", tiers())
@pytest.mark.parametrize("way", WAYS, ids=IDS)
def test_extents(way: tuple[str, Callable[..., Any], Callable[[Any], Call]], tier: int) -> None:
    try_all(way, tier, 1, SAMPLES)
    try_all(way, tier, 2, SAMPLES // 10)


@pytest.mark.parametrize("channels", [3, 16, 256, 300])
@pytest.mark.parametrize("stride", [2, 30_000])
def test_a_convolution_whose_stride_is_longer_than_the_image(channels: int, stride: int) -> None:
    """The last stage of a ResNet over small pictures; of all positions modulo the stride few have a pixel."""
    for tier, ask in itertools.product(
        tiers(), (Convolution.forward, Convolution.grad_x, Convolution.grad_w)
    ):
        kernel = ask.__name__.replace("forward", "").upper()
        check("_".join(filter(None, ("CONV", kernel))), ask(conv(2, 1, 3, channels, 300, 3, stride)), tier)


@pytest.mark.parametrize("tier", tiers())
def test_a_convolution_without_channels_has_gradients(tier: int) -> None:
    """Weights that are none, over enough pixels that they are summed in chunks, and the bias that is there all the same."""
    check("CONV_GRAD_W", Convolution.grad_w(conv(3, 15, 6, 0, 3, 2, 1)), tier)


@pytest.mark.slow
@pytest.mark.parametrize("tier", tiers())
@pytest.mark.parametrize("way", WAYS, ids=IDS)
def test_three_extents_at_once(way: tuple[str, Callable[..., Any], Callable[[Any], Call]], tier: int) -> None:
    try_all(way, tier, 3, 300)


@pytest.mark.slow
@pytest.mark.parametrize("way", WAYS, ids=IDS)
def test_wide_extents(way: tuple[str, Callable[..., Any], Callable[[Any], Call]]) -> None:
    """Rows of a thousand numbers meet in the cache's sets: what a kernel does about it needs memory that it has asked for."""
    kernel, made, ask = way
    found = [
        given
        for given in sizes(extents_of(made), (70, 1024), 2)
        if 1024 in given.values() and math.prod(given.values()) <= 1 << 20
        if all(given[name] <= 70 for name in LEAST.keys() & given.keys() - {"width", "along"})
    ]
    for given in random.Random(0).sample(found, min(SAMPLES // 20, len(found))):
        check(kernel, ask(made(**given)), max(tiers()), 1e-3)
