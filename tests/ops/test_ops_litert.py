"""Forward results against LiteRT, on models of one operator that our own writer made."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool

import numpy as np
import pytest
from single_operator import computed, every_example, examples, module_of, single
from test_ops import DEMANDED

from circle_train.errors import CircleTrainError
from circle_train.format import write
from circle_train.ir.tensor_type import Array
from circle_train.ops import Example
from circle_train.ops.attributes import Activation

litert_runtime = pytest.importorskip(
    "ai_edge_litert.interpreter", reason="LiteRT (ai-edge-litert) is not installed"
)

LEAST_COMPARED = 800
NOT_IN_LITERT = {"INSTANCE_NORM", "RMS_NORM"}
"""Circle has these, TFLite has not."""
tried: Counter[str] = Counter()
compared: Counter[str] = Counter()


class LiteRT:
    """LiteRT in a process of its own, because some models end it."""

    def __init__(self) -> None:
        self.pool = ProcessPoolExecutor(1)

    def run(self, model: bytes, inputs: dict[str, Array], outputs: list[str]) -> list[Array]:
        try:
            return self.pool.submit(run, model, inputs, outputs).result()
        except BrokenProcessPool:
            self.pool = ProcessPoolExecutor(1)
            raise RuntimeError("LiteRT ended the process") from None


@pytest.fixture(scope="module")
def litert() -> Iterator[LiteRT]:
    runner = LiteRT()
    yield runner
    runner.pool.shutdown()


def run(model: bytes, inputs: dict[str, Array], outputs: list[str]) -> list[Array]:
    """LiteRT's outputs, by its plain kernels."""
    plain = litert_runtime.OpResolverType.BUILTIN_WITHOUT_DEFAULT_DELEGATES
    interpreter = litert_runtime.Interpreter(
        model_content=model, experimental_op_resolver_type=plain, num_threads=1
    )
    interpreter.allocate_tensors()
    for detail in interpreter.get_input_details():
        interpreter.set_tensor(detail["index"], inputs[detail["name"]])
    interpreter.invoke()
    places = {detail["name"]: detail["index"] for detail in interpreter.get_output_details()}
    return [interpreter.get_tensor(places[name]) for name in outputs]


@every_example
def test_forward_is_litert(example: Example, litert: LiteRT) -> None:
    tried[example.op.name] += 1
    if example.op.activation is Activation.TANH:
        pytest.skip("LiteRT leaves a fused TANH out")
    values = single(example)
    feeds = {f"x{i}": value for i, value in enumerate(values) if value is not None}
    try:
        module = module_of(example)
        results = litert.run(write(module, "TFL3"), feeds, [tensor.name for tensor in module.main.outputs])
    except (RuntimeError, ValueError, CircleTrainError) as refusal:
        pytest.skip(f"not comparable: {refusal}")
    for result, expected in zip(results, computed(example.op, values), strict=True):
        assert result.dtype == expected.dtype
        assert result.shape == expected.shape
        if example.op.draws:
            continue
        np.testing.assert_allclose(result, expected, rtol=1e-5, atol=2e-6)
    compared[example.op.name] += 1


def test_enough_was_compared() -> None:
    """Runs last: what LiteRT refuses may not swallow the comparison."""
    if tried.total() < sum(1 for _ in examples()):
        pytest.skip("only some of the examples ran in this process")
    assert compared.total() >= LEAST_COMPARED
    assert set(DEMANDED) - set(compared) == NOT_IN_LITERT
