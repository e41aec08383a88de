"""What every optimizer promises, and whose numbers each rule gives."""

from __future__ import annotations

import json
from dataclasses import replace
from math import sqrt
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tiny_graph import evaluate

from circle_train import optimizers
from circle_train.errors import ConfigError
from circle_train.ir import DType, Graph, StateKey, Tensor, TensorType
from circle_train.ir.tensor_type import Array
from circle_train.ops import INTERNAL
from circle_train.ops.internal.update import Update
from circle_train.optimizers import SGD, Adagrad, Adam, AdamW, Optimizer, ParameterGroup, RMSprop, schedules

DATA = Path(__file__).parents[1] / "data"
GOLDEN = json.loads((DATA / "torch_optimizers.json").read_text(encoding="utf-8"))["cases"]
ORT = json.loads((DATA / "ort_adamw.json").read_text(encoding="utf-8"))["cases"]
RULES: list[Optimizer] = [
    *(rule(0.1, **({"weight_decay": 0.0} if rule is AdamW else {})) for rule in optimizers.BY_NAME.values()),
    SGD(0.1, momentum=0.9),
    SGD(0.1, momentum=0.9, nesterov=True),
    AdamW(0.1, weight_decay=0.0, style="ort"),
    AdamW(0.1, weight_decay=0.0, bias_correction=False),
    RMSprop(0.1, momentum=0.9, centered=True),
]
every_rule = pytest.mark.parametrize("rule", RULES, ids=repr)


def run(rule: Optimizer, w: Array, gradients: Array) -> list[Array]:
    """The weight after each update, and its slots at last."""
    slots = [np.zeros_like(w) for _ in rule.slots]
    trace = []
    for step, g in enumerate(gradients, 1):
        rule.update(w, g, np.array(rule.scalars(rule.base_learning_rate, step), w.dtype), *slots)
        trace.append(w.copy())
    return [*trace, *slots]


def test_optimizers_are_found_by_their_names() -> None:
    assert list(optimizers.BY_NAME)[:5] == ["sgd", "adam", "adamw", "rmsprop", "adagrad"]


@every_rule
def test_no_gradient_no_change(rule: Optimizer) -> None:
    w = np.array([1.5, -2.0, 0.0], np.float32)
    for after in run(rule, w.copy(), np.zeros((5, 3), np.float32))[:5]:
        np.testing.assert_array_equal(after, w)


@every_rule
def test_works_in_place_in_float32(rule: Optimizer) -> None:
    w, g = np.ones((2, 3), np.float32), np.full((2, 3), 0.5, np.float32)
    slots = [np.zeros_like(w) for _ in rule.slots]
    before, gradient = w, g.copy()
    assert Update(rule).compute([w, g, np.array(rule.scalars(0.1, 1), np.float32), *slots]) == ()
    assert before is w
    assert all(array.dtype == np.float32 and np.any(array != 0) for array in (w, *slots))
    np.testing.assert_array_equal(g, gradient)


@every_rule
def test_the_first_step_is_downhill_and_of_the_known_size(rule: Optimizer) -> None:
    g = np.array([[0.25, -4.0]])
    (after, *_) = run(rule, np.zeros((2,)), g)
    np.testing.assert_array_equal(np.sign(after), [-1, 1])
    if isinstance(rule, SGD):
        size = 0.1 * abs(g[0]) * (1 + rule.momentum if rule.nesterov else 1)
    elif isinstance(rule, AdamW) and not rule.bias_correction:
        size = np.full(2, 0.1 * 0.1 / sqrt(0.001))
    elif isinstance(rule, Adam):
        size = np.full(2, 0.1)
    elif isinstance(rule, RMSprop):
        size = np.full(2, 0.1 / sqrt(0.1 - (0.01 if rule.centered else 0)))
    elif isinstance(rule, Adagrad):
        size = 0.1 * abs(g[0]) / np.sqrt(g[0] ** 2 + 0.1)
    else:
        return
    np.testing.assert_allclose(after, -size * np.sign(g[0]), rtol=2e-5)


@every_rule
def test_a_bowl_is_descended(rule: Optimizer) -> None:
    w = np.array([1.0, -3.0])
    slots = [np.zeros_like(w) for _ in rule.slots]
    for step in range(1, 301):
        rule.update(w, 2 * w, np.array(rule.scalars(0.02, step)), *slots)
    assert np.abs(w).max() < (2.9 if isinstance(rule, Adagrad) else 0.2)


@pytest.mark.parametrize("case", GOLDEN["runs"], ids=lambda case: f"{case['optimizer']}-{case['settings']}")
@pytest.mark.parametrize(("dtype", "tolerance"), [(np.float64, 2e-8), (np.float32, 2e-6)])
def test_twenty_steps_are_pytorchs(case: dict[str, Any], dtype: Any, tolerance: float) -> None:
    rule = optimizers.BY_NAME[case["optimizer"]](**case["settings"])
    trace = run(rule, np.array(GOLDEN["start"], dtype), np.array(GOLDEN["gradients"], dtype))
    np.testing.assert_allclose(trace[0], case["first"], atol=tolerance)
    np.testing.assert_allclose(trace[19], case["last"], atol=tolerance)


def test_adam_is_onerts() -> None:
    """The bytes that ONERT 1.30 wrote after one step on one dense layer: dW = 33, db = 11, lr 0.1."""
    for start, gradient, w, m, v in (
        (2.0, 33.0, 0x3FF33333, 0x40533336, 0x3F8B63E4),
        (0.5, 11.0, 0x3ECCCCCE, 0x3F8CCCCF, 0x3DF7CE08),
    ):
        found = run(Adam(0.1), np.array([start], np.float32), np.array([[gradient]], np.float32))
        wanted = np.array([w, m, v], np.uint32).view(np.float32)
        np.testing.assert_allclose(np.concatenate(found), wanted, rtol=2e-7)


@pytest.mark.parametrize("case", ORT, ids=lambda case: str(case["name"]))
def test_adamw_is_onnx_runtimes(case: dict[str, Any]) -> None:
    rule = AdamW(**case["settings"], style="ort")
    before, gradient = (np.array(case[key], np.float32) for key in ("before", "gradient"))
    (after, *_) = run(rule, before, gradient[None])
    np.testing.assert_allclose(after, np.array(case["after"], np.float32), rtol=1e-6, atol=3e-8)


@pytest.mark.parametrize("name", ["CLIP_BY_VALUE", "CLIP_FACTOR", "SCALE_BY"])
def test_clipping_keeps_the_precision(name: str) -> None:
    for example in INTERNAL[name].examples():
        inputs = [None if x is None else x.astype(np.float32) for x in example.inputs]
        (found,), (exact,) = example.op.compute(inputs), example.op.compute(example.inputs)
        assert found.dtype == np.float32
        np.testing.assert_allclose(found, exact, rtol=1e-6)


def updates(
    optimizer: Optimizer,
    weights: dict[str, Array],
    gradients: dict[str, Array],
    learning_rate: float | None = None,
) -> dict[str, Array]:
    """One step on named weights, through the nodes that the optimizer adds."""

    class State:
        step = 0
        arrays: dict[StateKey, Array] = {}
        learning_rate = 0.0

    graph, state = Graph(), State()
    state.arrays = {}
    state.learning_rate = optimizer.base_learning_rate if learning_rate is None else learning_rate
    tensors = {
        n: Tensor(n, TensorType(DType.FLOAT32, w.shape), state=StateKey("value", n))
        for n, w in weights.items()
    }
    wanted = {n: Tensor(f"d({n})", TensorType(DType.FLOAT32, g.shape)) for n, g in gradients.items()}
    optimizer.add_updates(graph, list(tensors.values()), {tensors[n]: g for n, g in wanted.items()})
    feeds = {tensors[n]: w.copy() for n, w in weights.items()} | {wanted[n]: g for n, g in gradients.items()}
    for node in graph.nodes:
        for tensor in node.inputs:
            if tensor is not None and tensor.state is not None and tensor not in feeds:
                feeds[tensor] = state.arrays.setdefault(tensor.state, np.zeros(tensor.shape, np.float32))
    for key, numbers in optimizer.numbers(state.learning_rate, state.step).items():
        if key in state.arrays:
            state.arrays[key][:] = numbers
    values = evaluate(graph, feeds)
    return {name: values[tensor] for name, tensor in tensors.items()}


def test_the_norm_of_all_gradients_together_is_clipped() -> None:
    zeros = {"a": np.zeros(2, np.float32), "b": np.zeros((1, 2), np.float32)}
    gradients = {"a": np.array([3, 0], np.float32), "b": np.array([[0, 4]], np.float32)}
    found = updates(SGD(1.0, clip_norm=1.0), zeros, gradients)
    np.testing.assert_allclose(found["a"], [-3 / (5 + 1e-6), 0])
    np.testing.assert_allclose(found["b"], [[0, -4 / (5 + 1e-6)]])
    untouched = updates(SGD(1.0, clip_norm=100.0), zeros, gradients)
    np.testing.assert_array_equal(untouched["b"], [[0, -4]])
    by_value = updates(SGD(1.0, clip_value=3.5), zeros, gradients)
    np.testing.assert_array_equal(by_value["a"], [-3, 0])
    np.testing.assert_array_equal(by_value["b"], [[0, -3.5]])
    both = updates(SGD(1.0, clip_value=3.0, clip_norm=1.0), zeros, gradients)
    np.testing.assert_allclose(both["b"], [[0, -1 / sqrt(2)]], rtol=1e-5)


def test_the_first_update_of_a_session_is_step_one() -> None:
    """Adam's first step is as long as the learning rate, whatever the gradient."""
    found = updates(Adam(0.25), {"w": np.zeros(2, np.float32)}, {"w": np.array([3, -0.1], np.float32)})
    np.testing.assert_allclose(found["w"], [-0.25, 0.25], rtol=1e-4)


def test_groups_have_rates_and_decay_of_their_own() -> None:
    weights = {name: np.ones(1, np.float32) for name in ("head/w", "head/b", "body/w", "body/b")}
    gradients = {name: np.ones(1, np.float32) for name in weights}
    groups = [
        ParameterGroup("head/*", learning_rate=0.5),
        ParameterGroup(["body/b"], multiplier=0.0),
        ParameterGroup(lambda name: name.endswith("w"), weight_decay=1.0),
    ]
    found = updates(SGD(0.1, groups=groups), weights, gradients)
    wanted = {"head/w": 0.5, "head/b": 0.5, "body/w": 1 - 0.1 * (1 + 1), "body/b": 1.0}
    assert {name: pytest.approx(float(w[0])) for name, w in found.items()} == wanted
    halved = updates(SGD(0.1, groups=groups), weights, gradients, learning_rate=0.05)
    assert float(halved["head/w"][0]) == pytest.approx(0.75)


def test_only_trained_weights_have_slots() -> None:
    graph = Graph()
    trained, frozen = (Tensor(n, TensorType(DType.FLOAT32, (2,)), state=StateKey("value", n)) for n in "ab")
    Adam().add_updates(graph, [trained, frozen], {trained: Tensor("d(a)", trained.type)})
    (node,) = graph.nodes
    keys = [tensor.state for tensor in node.inputs if tensor is not None]
    assert keys == [("value", "a"), None, ("scalars", "0"), ("m", "a"), ("v", "a")]


def test_a_schedule_decides_the_rate() -> None:
    optimizer = SGD(schedules.LinearWarmup(1.0, warmup_steps=2, total_steps=4))
    assert optimizer.base_learning_rate == 1.0
    assert [optimizer.factor(step) for step in range(4)] == [0.0, 0.5, 1.0, 0.5]
    by_function = SGD(lambda step: 0.5 / (step + 1))
    (w,) = updates(by_function, {"w": np.zeros(1, np.float32)}, {"w": np.ones(1, np.float32)}).values()
    assert w[0] == -0.5


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: SGD(0.0), "SGD: learning_rate is 0.0, expected a positive number"),
        (lambda: SGD(float("nan")), "learning_rate is nan"),
        (lambda: SGD(momentum=1.0), r"momentum is 1.0, expected in \[0, 1\)"),
        (lambda: SGD(nesterov=True), "nesterov is True, expected False where momentum is 0"),
        (lambda: SGD(weight_decay=-1), "weight_decay is -1, expected not negative"),
        (lambda: Adam(beta_1=1.0), r"beta_1 is 1.0, expected in \[0, 1\)"),
        (lambda: Adam(epsilon=-1e-7), "epsilon is -1e-07"),
        (lambda: AdamW(style="keras"), "style is 'keras', expected 'torch' or 'ort'"),
        (lambda: RMSprop(rho=-0.1), "rho is -0.1"),
        (lambda: RMSprop(epsilon=0.0), "epsilon is 0.0, expected a positive number"),
        (lambda: Adagrad(initial_accumulator_value=-1), "initial_accumulator_value is -1"),
        (lambda: SGD(clip_norm=0.0), "clip_norm is 0.0, expected a positive number or None"),
        (lambda: SGD(clip_value=-1.0), "clip_value is -1.0"),
        (lambda: ParameterGroup("a", learning_rate=1.0, multiplier=2.0), "both learning_rate and multiplier"),
        (lambda: ParameterGroup("a", multiplier=-1.0), "multiplier is -1.0, expected a number from 0"),
        (lambda: Adam(groups=[ParameterGroup("a", weight_decay=0.1)]), "Adam has none; use SGD or AdamW"),
        (lambda: SGD(lambda s: 1.0, groups=[ParameterGroup("a", learning_rate=0.1)]), "give multiplier"),
    ],
)
def test_settings_out_of_range_are_refused(make: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        make()


def test_equal_settings_make_equal_rules() -> None:
    assert AdamW(style="ort") == replace(AdamW(), style="ort")
    assert hash(Update(SGD(0.1).rules[0])) == hash(Update(SGD(0.1, clip_norm=1.0).rules[0]))
