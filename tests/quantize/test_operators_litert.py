"""Every operator that says how it computes in integers, quantized and run by LiteRT against its floats."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from single_operator import computed, module_of, single

from circle_train.errors import ConfigError
from circle_train.format import write
from circle_train.ir import Module, Node, Tensor
from circle_train.ir.tensor_type import Array
from circle_train.ops import REGISTRY, Example, Op
from circle_train.ops.integers import Scales
from circle_train.quantize.quantize import quantize
from circle_train.runtime import litert as for_litert
from circle_train.session.shipping.ship import observed
from circle_train.settings.quantization import Int8

runtime = pytest.importorskip("ai_edge_litert.interpreter", reason="LiteRT (ai-edge-litert) is not installed")
OPERATORS = [cls for _, cls in sorted(REGISTRY.items()) if cls.in_integers is not None]
ALLOWED = {"int8": 0.06, "int16x8": 0.04}
"""Of an output's range: weights have 8 bits in both."""
SOME = 4
"""Examples of each that the fast suite compares."""
NEAR_ZERO = ("L2_NORMALIZATION", 3)
"""Divides by next to nothing, which 8 bits round to nothing."""


class LiteRT:
    """In a process of its own, because some models end it."""

    def __init__(self) -> None:
        self.pool = ProcessPoolExecutor(1)

    def run(self, *arguments: Any) -> list[Array]:
        try:
            return self.pool.submit(run, *arguments).result()
        except BrokenProcessPool:
            self.pool = ProcessPoolExecutor(1)
            raise AssertionError("LiteRT ended the process") from None


@pytest.fixture(scope="module")
def litert() -> Iterator[LiteRT]:
    runner = LiteRT()
    yield runner
    runner.pool.shutdown()


def run(model: bytes, feeds: dict[str, Array], outputs: list[str], plain: bool) -> list[Array]:
    resolvers = runtime.OpResolverType
    resolver = resolvers.BUILTIN_WITHOUT_DEFAULT_DELEGATES if plain else resolvers.AUTO
    interpreter = runtime.Interpreter(
        model_content=model, experimental_op_resolver_type=resolver, num_threads=1
    )
    interpreter.allocate_tensors()
    for detail in interpreter.get_input_details():
        interpreter.set_tensor(detail["index"], feeds[detail["name"]])
    interpreter.invoke()
    places = {detail["name"]: detail["index"] for detail in interpreter.get_output_details()}
    return [interpreter.get_tensor(places[name]) for name in outputs]


def with_weights(example: Example) -> Example:
    """Weights and biases as constants."""
    facts = example.op.in_integers
    assert facts is not None
    names = (*facts.weights, facts.bias)
    held = [i for i, v in enumerate(example.inputs) if v is not None and example.op.input_name(i) in names]
    return replace(example, constant=(*example.constant, *held))


def between_computing(module: Module) -> Module:
    """What only moves numbers stays float by itself: let |y| come behind it."""
    outputs = []
    for tensor in module.main.outputs:
        made = Tensor(f"{tensor.name}:abs", tensor.type)
        module.main.append(Node(REGISTRY["ABS"](), [tensor], [made], 1))
        outputs.append(made)
    module.main.outputs = outputs
    return module


def quantized(module: Module, feeds: Sequence[Array], scheme: str) -> Module:
    settings = Int8(calibration=feeds, scheme=scheme, io="float32", ranges="minmax")
    made = quantize(
        module, settings, lambda count: [feeds], lambda m, s, tensors: lambda: observed(m, s, tensors, 1)
    )
    return made.module


@pytest.mark.parametrize("cls", OPERATORS, ids=lambda cls: cls.name)
def test_integers_are_near_the_floats(cls: type[Op], litert: LiteRT) -> None:
    compare(cls, "int8", False, litert, SOME)


@pytest.mark.slow
@pytest.mark.parametrize("plain", [True, False], ids=["builtin", "xnnpack"])
@pytest.mark.parametrize("scheme", ["int8", "int16x8"])
@pytest.mark.parametrize("cls", OPERATORS, ids=lambda cls: cls.name)
def test_all_integers_are_near_the_floats(cls: type[Op], scheme: str, plain: bool, litert: LiteRT) -> None:
    compare(cls, scheme, plain, litert, 1000)


def compare(cls: type[Op], scheme: str, plain: bool, litert: LiteRT, most: int) -> None:
    facts = cls.in_integers
    assert facts is not None
    compared = 0
    for number, example in enumerate(itertools.islice(cls.examples(), most)):
        if example.op.activation and facts.scales is Scales.ONE:
            continue  # nor does LiteRT fuse it between floats
        values = single(example)
        moves = facts.scales is not Scales.OWN
        module = module_of(with_weights(example))
        module = between_computing(module) if moves else module
        feeds = {f"x{i}": value for i, value in enumerate(values) if value is not None}
        try:
            made = quantized(module, [feeds[tensor.name] for tensor in module.main.inputs], scheme)
        except ConfigError:  # integers already, or an activation that LiteRT does not fuse
            continue
        names = [tensor.name for tensor in made.main.outputs]
        found = litert.run(write(for_litert.for_litert(made), "TFL3"), feeds, names, plain)
        compared += 1
        for result, floats in zip(found, computed(example.op, values), strict=True):
            expected = np.abs(floats) if moves else floats
            assert result.shape == expected.shape
            if facts.makes_integers or (cls.name, number) == NEAR_ZERO:
                continue
            reach = max(np.abs(expected).max(initial=0), 1e-6)
            assert np.abs(result - expected).max(initial=0) <= ALLOWED[scheme] * reach, (number, example.op)
    expected_any = {"int8": True, "int16x8": len(facts.types) > 1}[scheme] or moves
    assert compared or not expected_any


def test_most_operators_of_networks_are_known() -> None:
    assert len(OPERATORS) > 55


def test_facts_speak_of_inputs() -> None:
    for cls in OPERATORS:
        facts = cls.in_integers
        assert facts is not None
        names = {spec.name for spec in cls.inputs}
        assert {*facts.data, *facts.weights, *([facts.bias] if facts.bias else [])} <= names, cls.name
