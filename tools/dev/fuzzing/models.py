"""Models of every operator, damaged table by table or message by message, and all that a person does with a model."""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

import format_models
import networks
import numpy as np
import random_onnx

import circle_train as ct
from circle_train import format
from circle_train.format.flatbuffer.decode import decode
from circle_train.format.flatbuffer.encode import encode
from circle_train.format.model.reader import SCHEMAS
from circle_train.ir import DType, Graph, Module, Tensor, TensorType
from circle_train.ir.graph import constant
from circle_train.ops import REGISTRY
from circle_train.session.foresight import choices, operator_checks
from fuzzing import ROOT
from fuzzing.damage import Rng, damaged_bytes, damaged_message, damaged_tables, pick

DATA = ROOT / "tests" / "data"
KEPT = DATA / "fuzz"
LARGE_WORK, LARGE_BYTES = 5e8, 64 << 20
"""Operations and bytes of a step beyond which a case is planned, but not run: it would be no hang, only large."""
TRAINED = ct.TrainConfig(loss="mse", optimizer=ct.optimizers.SGD(0.01, momentum=0.9), batch_size=2)


class Large(Exception):
    """Sound, as far as planning says, and too much work for a case."""


def kept(target: str) -> list[Path]:
    """What earlier runs found: the last of the seeds."""
    return sorted(KEPT.glob(f"{target}-*"))


def one_operator(example: Any, behind: bool) -> Module:
    """An operator, perhaps behind an addition that is trained; its other floats are weights."""
    values = [v.astype(np.float32) if v is not None and v.dtype == np.float64 else v for v in example.inputs]
    graph = Graph("main")
    fed = next((i for i, v in enumerate(values) if v is not None and v.dtype == np.float32), None)
    inputs: list[Tensor | None] = []
    for i, value in enumerate(values):
        if value is None:
            inputs.append(None)
        elif i == fed and i not in example.constant:
            x = Tensor("x", TensorType(DType.FLOAT32, value.shape))
            graph.inputs.append(x)
            added = graph.emit(REGISTRY["ADD"](), x, constant(value, "p"), name="added") if behind else x
            inputs.append(added)
        else:
            inputs.append(constant(value, f"w{i}"))
    if not graph.inputs:
        first = next(i for i, v in enumerate(values) if v is not None)
        inputs[first] = Tensor("x", TensorType(DType.of(values[first].dtype), values[first].shape))
        graph.inputs.append(inputs[first])  # type: ignore[arg-type]
    graph.outputs = graph.emit_all(example.op, *inputs, name="y")
    for index, node in enumerate(graph.nodes):
        node.index = index
    return Module([graph])


@cache
def models() -> list[bytes]:
    found = []
    for _, cls in sorted(REGISTRY.items()):
        for example in cls.examples():
            with suppress(ct.CircleTrainError, StopIteration):
                found += [format.write(one_operator(example, behind)) for behind in (False, True)]
    hand_made = [networks.mlp(), networks.cnn(), networks.two_headed(), networks.tied()]
    found += [format.write(model.with_training(TRAINED).module) for model in hand_made] * 10
    found += [
        format_models.rich_file(),
        format_models.rich_file(b"TFL3"),
        format.write(format_models.small()),
    ] * 10
    return found + [path.read_bytes() for path in kept("model")]


def damaged_model(raw: bytes, rng: Rng) -> bytes:
    """Mostly its tables changed one by one, so that it gets beyond the reader."""
    identifier = raw[4:8]
    if rng.random() < 0.15 or identifier.decode("latin-1") not in SCHEMAS:
        return damaged_bytes(raw, rng)
    try:
        tables = decode(raw, "Model", identifier, SCHEMAS[identifier.decode()])
        return encode("Model", damaged_tables(tables, rng), identifier)
    except (
        ct.CircleTrainError,
        KeyError,
        TypeError,
        ValueError,
        AttributeError,
        OverflowError,
        struct.error,
    ):
        return damaged_bytes(raw, rng)


def run_model(raw: bytes, rng: Rng, folder: Path) -> None:
    """Load, check, infer, train a step by the native engine, export, reload."""
    exercise(ct.load(raw), rng, folder, ".circle")


def exercise(model: ct.Model, rng: Rng, folder: Path, suffix: str) -> None:
    """Everything that a person would do with a model; what one part refuses does not keep the next from being tried."""
    [str(node) for graph in model.module.graphs for node in graph.nodes]
    repr((model, model.inputs, model.outputs, model.operators))
    operator_checks(model)
    refusals: list[ct.CircleTrainError] = []
    for part in (_check, _infer, _train):
        try:
            part(model, rng, folder, suffix)
        except ct.CircleTrainError as error:
            refusals.append(error)
    if refusals:
        raise refusals[-1]


def _check(model: ct.Model, rng: Rng, folder: Path, suffix: str) -> None:
    with suppress(ct.CircleTrainError):
        repr(model.training)
    choices(model, "mse", "adam", 2)


def _infer(model: ct.Model, rng: Rng, folder: Path, suffix: str) -> None:
    session = ct.InferenceSession(model, threads=1)
    inputs = [ones(t, rng) for t in model.module.main.inputs]
    guard_size(inputs)
    probe = ct.TrainSession(model, _config(model), threads=1, backend="reference")
    with suppress(ct.CircleTrainError):
        refuse_large(probe)
    session(*inputs)


def _train(model: ct.Model, rng: Rng, folder: Path, suffix: str) -> None:
    changes = pick(rng, ({}, {}, {}, {"memory_budget": 1}, {"activations": "bfloat16"}))
    session = ct.TrainSession(model, _config(model, **changes), threads=1)
    refuse_large(session)
    inputs = [ones(t, rng) for t in session.program.inputs]
    targets = [np.zeros(t.shape, t.dtype.numpy) for t in session.program.targets]
    before = {name: np.array(value) for name, value in session.parameters.items()}
    try:
        session.train_step(inputs, targets)
    except ct.CircleTrainError:
        for name, value in session.parameters.items():
            assert np.array_equal(before[name], value, equal_nan=True), f"a refused step changed '{name}'"
        return
    path = folder / f"out{suffix}"
    session.export(path)
    ct.load(path)


def _config(model: ct.Model, **changes: Any) -> ct.TrainConfig:
    losses = ["mse" if t.dtype.is_float else "unused" for t in model.module.main.outputs]
    return TRAINED.replace(loss=losses or "mse", **changes)


def refuse_large(session: ct.TrainSession) -> None:
    """Go no further with what is only large."""
    program = session.program
    if program.flops > LARGE_WORK or program.arena_bytes > LARGE_BYTES:
        raise Large
    str(session.plan)


def guard_size(arrays: Sequence[np.ndarray]) -> None:
    if sum(array.nbytes for array in arrays) > LARGE_BYTES:
        raise Large


def ones(tensor: Tensor, rng: Rng) -> np.ndarray:
    """Numbers for an input; open sizes are 2."""
    shape = tuple(2 if size < 0 else size for size in tensor.shape)
    if np.prod(shape, dtype=np.float64) > LARGE_BYTES:
        raise Large
    dtype = tensor.dtype.numpy or np.dtype(np.float32)
    return rng.uniform(-2, 3, shape).astype(dtype) if dtype.kind != "O" else np.zeros(shape, dtype)


@cache
def onnx_models() -> list[bytes]:
    from onnx_cases import node_cases, with_constants

    found = {}
    for case in (*node_cases(), *with_constants(node_cases())):
        if len(case.model) < 20_000:
            found[hashlib.sha256(case.model).hexdigest()] = case.model
    nets = [random_onnx.network(seed)[0].SerializeToString() for seed in range(30)]
    return [found[key] for key in sorted(found)] + nets * 3 + [path.read_bytes() for path in kept("onnx")]


def damaged_onnx(raw: bytes, rng: Rng) -> bytes:
    import onnx
    from google.protobuf.message import DecodeError

    if rng.random() < 0.2:
        return damaged_bytes(raw, rng)
    try:
        return damaged_message(onnx.ModelProto.FromString(raw), rng)
    except (DecodeError, ValueError, TypeError):
        return damaged_bytes(raw, rng)


def run_onnx(raw: bytes, rng: Rng, folder: Path) -> None:
    path = folder / "m.onnx"
    path.write_bytes(raw)
    exercise(ct.load(path), rng, folder, str(pick(rng, (".circle", ".onnx"))))
