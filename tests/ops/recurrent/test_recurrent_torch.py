"""Recurrent operators against PyTorch's."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from single_operator import computed
from test_ops_gradient import gradient, projections

from circle_train.ops import REGISTRY, Example
from circle_train.ops.attributes import Activation

torch = pytest.importorskip("torch", reason="PyTorch is the referee here")


def numbers(*shape: int, seed: int) -> Any:
    return np.random.default_rng(seed).uniform(-1, 1, shape)


def rows(weights: Any, order: Sequence[int]) -> Any:
    """Blocks of rows in another order: gates are named differently everywhere."""
    blocks = np.split(weights, len(order))
    return np.concatenate([blocks[i] for i in order])


def load(module: Any, values: dict[str, Any]) -> None:
    for name, value in values.items():
        with torch.no_grad():
            getattr(module, name).copy_(torch.tensor(value))


def check_recurrent(example: Example, module: Any, own: dict[str, tuple[str, Any]], state: Any) -> None:
    """Compare outputs and gradients; `own` finds a torch parameter's rows for our input: (name, slice)."""
    op, x = example.op, torch.tensor(example.inputs[0], requires_grad=True)
    y, _ = module(x, state)
    if y.shape != (found := computed(op, example.inputs))[0].shape:
        y = y[-1]
    np.testing.assert_allclose(found[0], y.detach().numpy(), rtol=1e-9, atol=1e-12)
    names = [spec.name for spec in op.inputs]
    parameters = [x, *module.parameters()]
    results = torch.autograd.grad(y, parameters, torch.tensor(projections(found)[0]))
    gradients = dict(zip(["x", *(name for name, _ in module.named_parameters())], results, strict=True))
    for name, (theirs, part) in {"x": ("x", slice(None)), **own}.items():
        mine = gradient(op, example.inputs, names.index(name))
        np.testing.assert_allclose(mine, gradients[theirs].numpy()[part], rtol=1e-8, atol=1e-11, err_msg=name)


def lstm_direction(
    prefix: str, suffix: str, outputs: int, projected: bool
) -> tuple[dict[str, Any], dict[str, Any], dict[str, Any]]:
    """Our inputs, torch's parameters, and which of its rows are ours; 3 inputs, 4 units."""
    seed = len(suffix)
    w, r, b = numbers(16, 3, seed=seed), numbers(16, outputs, seed=seed + 1), numbers(16, seed=seed + 2)
    theirs = {
        f"weight_ih{suffix}": w,
        f"weight_hh{suffix}": r,
        f"bias_ih{suffix}": b,
        f"bias_hh{suffix}": 0 * b,
    }
    ours, own = {}, {}
    for number, gate in enumerate("ifgo"):
        part = slice(4 * number, 4 * number + 4)
        for kind, name, value in (("w", "weight_ih", w), ("r", "weight_hh", r), ("b", "bias_ih", b)):
            ours[f"{prefix}{kind}_{gate}"] = value[part]
            own[f"{prefix}{kind}_{gate}"] = name + suffix, part
    if projected:
        ours[f"{prefix}w_p"] = theirs[f"weight_hr{suffix}"] = numbers(outputs, 4, seed=seed + 3)
        own[f"{prefix}w_p"] = f"weight_hr{suffix}", slice(None)
    return ours, theirs, own


@pytest.mark.parametrize(("time_major", "projected"), list(itertools.product((False, True), repeat=2)))
def test_lstm(time_major: bool, projected: bool) -> None:
    outputs = 2 if projected else 4
    values, theirs, own = lstm_direction("", "_l0", outputs, projected)
    values |= {"x": numbers(5, 2, 3, seed=9), "h": numbers(2, outputs, seed=10), "c": numbers(2, 4, seed=11)}
    cls = REGISTRY["UNIDIRECTIONAL_SEQUENCE_LSTM"]
    op = cls(Activation.TANH, time_major=time_major)  # type: ignore[call-arg]
    module = torch.nn.LSTM(3, 4, batch_first=not time_major, proj_size=2 if projected else 0).double()
    load(module, theirs)
    if not time_major:
        values["x"] = np.ascontiguousarray(values["x"].swapaxes(0, 1))
    state = tuple(torch.tensor(values[name][None]) for name in "hc")
    example = Example(op, tuple(values.get(spec.name) for spec in cls.inputs))
    check_recurrent(example, module, own, state)


def test_lstm_both_directions() -> None:
    forward, theirs, own = lstm_direction("fw_", "_l0", 4, False)
    backward, more, also = lstm_direction("bw_", "_l0_reverse", 4, False)
    values = {"x": numbers(5, 2, 3, seed=9), **forward, **backward}
    cls = REGISTRY["BIDIRECTIONAL_SEQUENCE_LSTM"]
    op = cls(Activation.TANH, merge_outputs=True)  # type: ignore[call-arg]
    module = torch.nn.LSTM(3, 4, bidirectional=True).double()
    load(module, theirs | more)
    check_recurrent(
        Example(op, tuple(values.get(spec.name) for spec in cls.inputs)), module, own | also, None
    )


@pytest.mark.parametrize("sequences", [False, True])
def test_gru(sequences: bool) -> None:
    """torch.nn.GRU has the rows r, z, n where Circle has z, n, r."""
    values = {"x": numbers(5, 2, 3, seed=0), "h": numbers(2, 4, seed=1), "w": numbers(12, 3, seed=2)}
    values |= {"r": numbers(12, 4, seed=3), "b_w": numbers(12, seed=4), "b_r": numbers(12, seed=5)}
    cls = REGISTRY["GRU"]
    op = cls(sequences, True)  # type: ignore[call-arg]
    module = torch.nn.GRU(3, 4).double()
    names = {"w": "weight_ih_l0", "r": "weight_hh_l0", "b_w": "bias_ih_l0", "b_r": "bias_hh_l0"}
    load(module, {theirs: rows(values[ours], (2, 0, 1)) for ours, theirs in names.items()})
    order = np.r_[4:12, 0:4]
    own = {ours: (theirs, order) for ours, theirs in names.items()}
    example = Example(op, tuple(values[spec.name] for spec in cls.inputs))
    check_recurrent(example, module, own, torch.tensor(values["h"][None]))


@pytest.mark.parametrize("activation", [Activation.TANH, Activation.RELU])
def test_rnn(activation: Activation) -> None:
    values = {"x": numbers(5, 2, 3, seed=0), "h": numbers(2, 4, seed=1), "w": numbers(4, 3, seed=2)}
    values |= {"r": numbers(4, 4, seed=3), "b": numbers(4, seed=4)}
    cls = REGISTRY["UNIDIRECTIONAL_SEQUENCE_RNN"]
    op = cls(True, activation)  # type: ignore[call-arg]
    module = torch.nn.RNN(3, 4, nonlinearity=activation.name.lower()).double()
    names = {"w": "weight_ih_l0", "r": "weight_hh_l0", "b": "bias_ih_l0"}
    load(module, {theirs: values[ours] for ours, theirs in names.items()} | {"bias_hh_l0": np.zeros(4)})
    own = {ours: (theirs, slice(None)) for ours, theirs in names.items()}
    example = Example(op, tuple(values[spec.name] for spec in cls.inputs))
    check_recurrent(example, module, own, torch.tensor(values["h"][None]))
