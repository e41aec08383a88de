"""What LiteRT computes and the registry lacks, each with its reason; and operators outside the registry."""

from __future__ import annotations

import pkgutil
from collections.abc import Iterator
from contextlib import suppress
from importlib import import_module
from itertools import chain

import numpy as np
import pytest

import circle_train
import circle_train as ct
from circle_train.compile.asked import REASONS
from circle_train.errors import UnsupportedOpError
from circle_train.format import write
from circle_train.format.flatbuffer.schema import ENUMS
from circle_train.ir import DType, Graph, Module, Node, Tensor, TensorType
from circle_train.ops import INTERNAL, REGISTRY, Op
from circle_train.ops.base import arity_of
from circle_train.ops.control.learning import LearningLoop
from circle_train.ops.declared import read_gradients, read_inputs
from circle_train.ops.opaque import Opaque
from circle_train.passes.control.variables import NAMES

MISSING = {
    name: code for name, code in ENUMS["BuiltinOperator"].items() if code >= 0 and name not in REGISTRY
}
NO_OPERATOR = "CUSTOM"
"""Stands for all that have a name of their own."""
GONE_BEFORE = {*NAMES, "CALL_ONCE"}
"""Variables are tensors by the time that anything is computed (passes/control/variables.py, tests/passes/test_control.py)."""


def file_of(name: str) -> bytes:
    x, y = (Tensor(letter, TensorType(DType.FLOAT32, (2,))) for letter in "xy")
    node = Node(Opaque(MISSING[name], name, (y.type,)), [x], [y], 0)
    y.producer = node
    return write(Module([Graph("main", [x], [y], [node])]), "TFL3")


def test_what_litert_computes_and_we_do_not_has_its_reason() -> None:
    runtime = pytest.importorskip("ai_edge_litert.interpreter")
    theirs = set()
    for name in MISSING.keys() - {NO_OPERATOR}:
        try:
            runtime.Interpreter(model_content=file_of(name))
        except ValueError as refusal:
            assert f"Didn't find op for builtin opcode '{name}'" in str(refusal)
        else:
            theirs.add(name)
    assert theirs == GONE_BEFORE | REASONS.keys()


@pytest.mark.parametrize("name", sorted(REASONS))
def test_the_refusal_says_the_reason(name: str) -> None:
    with pytest.raises(
        UnsupportedOpError, match=rf"{name} .*\(it works on strings, circle_train on numbers\)"
    ):
        ct.InferenceSession(ct.load(file_of(name)))


NOT_MODULES = ("__main__", "libcircle_train_native")


def below(cls: type[Op]) -> Iterator[type[Op]]:
    for inner in cls.__subclasses__():
        yield inner
        yield from below(inner)


def outside() -> list[type[Op]]:
    """Every class of an operator with a name that no registry holds, wherever in the package it is."""
    for module in pkgutil.walk_packages(circle_train.__path__, "circle_train."):
        if not module.name.endswith(NOT_MODULES):
            with suppress(ModuleNotFoundError):  # of an extra that is not installed
                import_module(module.name)
    ours = {cls for cls in below(Op) if cls.__module__.startswith("circle_train.")}
    named = {cls for cls in ours if cls.name and cls is not Opaque}
    return sorted(named - {*chain(REGISTRY.values(), INTERNAL.values())}, key=lambda cls: cls.__name__)


@pytest.mark.parametrize("cls", outside(), ids=lambda cls: cls.__name__)
def test_what_a_class_says_of_itself_is_what_its_methods_take(cls: type[Op]) -> None:
    assert cls.inputs == read_inputs(cls) != ()
    assert cls.arity == arity_of(cls.inputs)
    if cls is not LearningLoop:
        assert cls.gradients == read_gradients(cls)
    else:  # some of its operands go by another name: tests/convert/open/test_decided_loops.py
        assert set(cls().gradients) == {"xs", "weights"} == set(cls.together)


def test_an_error_function_is_inferred_computed_and_counted() -> None:
    erf = next(cls for cls in outside() if cls.name == "ERF")()
    x = np.array([0.0, 0.5, -2.0], np.float32)
    assert erf.infer_types([TensorType(DType.FLOAT32, (3,))]) == (TensorType(DType.FLOAT32, (3,)),)
    np.testing.assert_allclose(erf.compute([x])[0], [0, 0.5204999, -0.9953223], rtol=1e-6)
    with pytest.raises(circle_train.ModelError, match="ERF has 2 inputs, expected 1"):
        erf.check_arity([x, x])


def test_an_unknown_operator_takes_any_inputs() -> None:
    op = Opaque(output_types=(TensorType(DType.FLOAT32, (3,)),))
    for count in range(3):
        op.check_arity([None] * count)
        assert op.infer_types([None] * count) == op.output_types
    assert op.input_name(2) == "input 2" and op.pad([1]) == [1] and not op.is_variadic
