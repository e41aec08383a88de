"""onnx's own backend cases, each converted and computed by our reference operators."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import numpy_helper

from circle_train.convert import load_onnx
from circle_train.convert.other.referee import evaluate
from circle_train.errors import ConversionError, UnsupportedOpError

SKIPPED = (
    "training", "sequence", "optional", "string", "loop", "scan", "adagrad", "adam", "momentum", "gradient", "bernoulli",
    "random", "strnorm",
)  # fmt: skip
"""Of what Circle has no notion, or what has no one right answer."""
NUMERIC = {"FLOAT", "INT32", "INT64", "BOOL", "UINT8", "INT8", "DOUBLE", "FLOAT16", "INT16"}


@dataclass(frozen=True)
class Case:
    """A model with inputs and the outputs that the standard asks for."""

    name: str
    operator: str
    model: bytes
    inputs: dict[str, Any]
    outputs: Sequence[Any]
    loose: bool
    """Half precision: compared to 2e-3 instead of 1e-3."""


@dataclass(frozen=True)
class Outcome:
    verdict: str
    """"match", "refused", "wrong" or "error"."""
    reason: str = ""


def node_cases() -> Iterator[Case]:
    """The numeric single-operator cases; expansions into functions are named by the operator they expand."""
    from onnx.backend.test.case.node import collect_testcases

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        collected = collect_testcases(None)
    for case in collected:
        if any(word in case.name for word in SKIPPED) or _types(case.model) - NUMERIC:
            continue
        inputs, outputs = next(iter(case.data_sets))
        operator = case.model.graph.node[0].op_type
        yield _case(
            case.name,
            operator if "_expanded" not in case.name else "(expanded functions)",
            case.model,
            inputs,
            outputs,
        )


def stored_cases(kind: str) -> Iterator[Case]:
    """The models of `pytorch-converted`, `pytorch-operator` or `simple` that come with onnx."""
    folder = Path(os.path.dirname(onnx.__file__)) / "backend" / "test" / "data" / kind
    for place in sorted(folder.iterdir()):
        if any(word in place.name for word in SKIPPED) or not (place / "test_data_set_0").is_dir():
            continue
        model = onnx.load(place / "model.onnx")
        data = place / "test_data_set_0"
        inputs, outputs = (
            [_stored(path) for path in sorted(data.glob(f"{part}_*.pb"))] for part in ("input", "output")
        )
        yield _case(place.name, kind, model, inputs, outputs)


def _stored(path: Path) -> Any:
    tensor = onnx.TensorProto()
    tensor.ParseFromString(path.read_bytes())
    return numpy_helper.to_array(tensor)


def _case(name: str, operator: str, model: Any, inputs: Sequence[Any], outputs: Sequence[Any]) -> Case:
    initializers = {tensor.name for tensor in model.graph.initializer}
    names = [info.name for info in model.graph.input if info.name not in initializers]
    if len(names) != len(inputs):
        names = [info.name for info in model.graph.input]
    feeds = dict(zip(names, map(_array, inputs), strict=False))
    return Case(
        name,
        operator,
        model.SerializeToString(),
        feeds,
        [_array(o) for o in outputs],
        "FLOAT16" in _types(model),
    )


def _array(value: Any) -> Any:
    """Some cases hold ONNX's own tensors."""
    return numpy_helper.to_array(value) if hasattr(value, "SerializeToString") else np.asarray(value)


def _types(model: Any) -> set[str]:
    infos = [*model.graph.input, *model.graph.output]
    return {onnx.TensorProto.DataType.Name(info.type.tensor_type.elem_type) for info in infos}


FLOAT_SETTINGS = ("scales", "roi", "window", "W", "R", "B", "w", "ratio", "min", "max")
"""Inputs of floats that people's models hold as constants."""


def with_constants(cases: Iterator[Case]) -> Iterator[Case]:
    """The cases as people's models have them: shapes, axes, counts and weights are initializers, not inputs."""
    for case in cases:
        model = onnx.load_from_string(case.model)
        data = next(iter(case.inputs), "")
        fixed = [
            n for n, v in case.inputs.items() if n != data and (v.dtype.kind in "iub" or n in FLOAT_SETTINGS)
        ]
        if not fixed:
            continue
        model.graph.initializer.extend(numpy_helper.from_array(case.inputs[name], name) for name in fixed)
        left = [info for info in model.graph.input if info.name not in fixed]
        del model.graph.input[:]
        model.graph.input.extend(left)
        inputs = {name: value for name, value in case.inputs.items() if name not in fixed}
        yield replace(case, model=model.SerializeToString(), inputs=inputs)


def with_one_computed(cases: Iterator[Case]) -> Iterator[Case]:
    """Of those with several constants, each once with one of them an input."""
    for case in cases:
        constants = list(onnx.load_from_string(case.model).graph.initializer)
        for chosen in constants if len(constants) > 1 else ():
            model = onnx.load_from_string(case.model)
            del model.graph.initializer[:]
            model.graph.initializer.extend(tensor for tensor in constants if tensor.name != chosen.name)
            info = onnx.helper.make_tensor_value_info(chosen.name, chosen.data_type, chosen.dims)
            model.graph.input.append(info)
            inputs = {**case.inputs, chosen.name: numpy_helper.to_array(chosen)}
            yield replace(case, model=model.SerializeToString(), inputs=inputs)


def outcome(case: Case) -> Outcome:
    """What conversion and our reference operators make of a case."""
    try:
        module, _ = load_onnx(case.model)
    except ConversionError as error:
        stumbled = "do not fit together (" in str(
            error
        )  # a handler over what it was given, though the case is sound
        return Outcome("wrong" if stumbled else "refused", str(error).splitlines()[-1].strip())
    try:
        found = evaluate(
            module.main, {tensor.name: case.inputs[tensor.name] for tensor in module.main.inputs}
        )
    except UnsupportedOpError as error:  # of values that are known only while running
        return Outcome("refused", str(error))
    tolerance = {"rtol": 2e-3, "atol": 1e-3} if case.loose else {"rtol": 1e-3, "atol": 1e-4}
    for tensor, ours, theirs in zip(module.main.outputs, found, case.outputs, strict=True):
        known = [n if size < 0 else size for size, n in zip(tensor.shape, ours.shape, strict=False)]
        if tensor.dtype.numpy != ours.dtype or len(tensor.shape) != ours.ndim or tuple(known) != ours.shape:
            return Outcome(
                "wrong", f"{tensor.name} is {ours.dtype} {ours.shape}, its type says {tensor.type}"
            )
        if ours.shape != theirs.shape or ours.dtype != theirs.dtype:
            return Outcome(
                "wrong", f"{tensor.name} is {ours.dtype} {ours.shape}, expected {theirs.dtype} {theirs.shape}"
            )
        if not np.allclose(ours.astype(np.float64), theirs.astype(np.float64), equal_nan=True, **tolerance):
            return Outcome("wrong", f"{tensor.name} differs")
    return Outcome("match")
