"""What training must know of a converted model and Circle has no field for, in a metadata entry of the file.

Dropout and batch normalisation by the operator's output; by name constants that are no parameters, those that are one weight
wherever they are read, and the parameters that a package without weights left out. In memory these are the nodes' hints and the
tensors' roles.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Iterable, Mapping
from dataclasses import fields, replace
from typing import Any

import numpy as np

from circle_train.errors import FOREIGN, ConfigError, ModelError
from circle_train.format.metadata.training_info import put
from circle_train.ir import Buffer, Graph, Module, Role, Tensor
from circle_train.ir.node import BatchNorm, Dropout, Hint, Rounding
from circle_train.ops.sweeps import Sweep
from circle_train.printable import printable

ENTRY = "circle_train.hints"
ON_NODES: dict[str, tuple[type[Hint], str]] = {
    "dropout": (Dropout, "RESHAPE"),
    "batch_norm": (BatchNorm, "ADD"),
    "rounding": (Rounding, "MINIMUM"),
    "sweep": (Sweep, "PACK"),
}
"""What formulas stand for, by the name of their output, and which operator ends them."""
ON_TENSORS = {"fixed": Role.FIXED, "statistic": Role.STATISTIC, "nominal": Role.NOMINAL, "tied": Role.TIED}


def attach(module: Module) -> Module:
    """A module whose file will hold its hints; without any it is left alone."""
    hints = collect(module.main)
    return put_entry(module, ENTRY, hints) if hints else module


def collect(graph: Graph) -> dict[str, Any]:
    """The hints of a graph as data."""
    found: dict[str, Any] = {}
    for kind, (cls, _) in ON_NODES.items():
        ends = [(node.outputs[0].name, node.hint) for node in graph.nodes if isinstance(node.hint, cls)]
        if ends:
            found[kind] = {name: _described(hint) for name, hint in ends}
    constants = [t for t in graph.all_tensors() if t.buffer is not None and t.dtype.is_float]
    named = {kind: [t.name for t in constants if role in t.role] for kind, role in ON_TENSORS.items()}
    shared = {t.name for t in constants if len(graph.readers(t)) > 1}
    named["tied"] = [name for name in named["tied"] if name in shared]
    return found | {kind: names for kind, names in named.items() if names}


def _described(hint: Hint) -> dict[str, Any]:
    """Its tensors by name."""
    values = {each.name: getattr(hint, each.name) for each in fields(hint)}
    return {name: value.name if isinstance(value, Tensor) else value for name, value in values.items()}


def restore(module: Module) -> None:
    """Put the hints that a file holds back where they belong; a program that changed the model may have lost some."""
    hints = read_entry(module, ENTRY)
    if hints is None:
        return
    tensors = {t.name: t for t in module.main.all_tensors()}
    made = {node.outputs[0].name: node for node in module.main.nodes if node.outputs}
    lost: list[str] = []
    try:
        for kind, (cls, operator) in ON_NODES.items():
            for name, mark in hints.get(kind, {}).items():
                hint = _told(cls, mark, tensors)
                if hint is not None and name in made and made[name].op.name == operator:
                    made[name].hint = hint
                else:
                    lost.append(name)
        for kind, role in ON_TENSORS.items():
            for name in hints.get(kind, ()):
                if name in tensors:
                    tensors[name].role |= role
                else:
                    lost.append(name)
    except FOREIGN as error:
        raise ModelError(f"metadata '{ENTRY}' is damaged ({error!r}); convert the model anew") from None
    if lost:
        warnings.warn(
            f"the model was changed since it was converted: what training should know of '{printable(str(lost[0]))}' and "
            f"{len(lost) - 1} more is lost (dropout, batch normalisation, numbers that are no parameters)",
            stacklevel=3,
        )
    _fill_nominal(module, [t for t in tensors.values() if Role.NOMINAL in t.role])


def _told(cls: type[Hint], mark: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> Hint | None:
    """The hint that `_described` wrote; None where a tensor of its is gone."""
    values: dict[str, Any] = {}
    for each in fields(cls):
        kind, value = str(each.type), mark[each.name]
        is_absent = value is None and kind.endswith("| None")
        if kind.startswith("Tensor") and not is_absent:
            if str(value) not in tensors:
                return None
            values[each.name] = tensors[value]
        else:
            made = {"int": int, "str": str}.get(kind.split(maxsplit=1)[0], float)
            values[each.name] = value if is_absent else made(value)
    return cls(**values)


def without_values(module: Module, tensors: Iterable[Tensor]) -> Module:
    """A module without the elements of these constants, which it is marked to lack."""
    empty: dict[Buffer, Buffer] = {}
    for tensor in tensors:
        assert tensor.buffer is not None
        tensor.role |= Role.NOMINAL
        empty[tensor.buffer] = Buffer()
    for tensor in module.main.all_tensors():
        if tensor.buffer in empty:
            tensor.buffer = empty[tensor.buffer]
    carried = {key: value for key, value in module.carried.items() if key not in ("source", "replaced")}
    return replace(module, buffers=[empty.get(buffer, buffer) for buffer in module.buffers], carried=carried)


def with_values(module: Module) -> Module:
    """A module that no longer says that it lacks values."""
    hints = read_entry(module, ENTRY)
    if hints is None or "nominal" not in hints:
        return module
    return put_entry(module, ENTRY, {kind: mark for kind, mark in hints.items() if kind != "nominal"})


def refuse_nominal(module: Module) -> None:
    """Refuse to run a model that lacks values."""
    lacking = [t.name for t in module.main.all_tensors() if Role.NOMINAL in t.role]
    if lacking:
        raise ConfigError(
            f"the package holds no weights: {len(lacking)} parameters have no value ('{lacking[0]}', …); "
            "give it some with ct.load(…).with_parameters(…)"
        )


def _fill_nominal(module: Module, tensors: Iterable[Tensor]) -> None:
    """Zeros in the place of values that the file left out, so that the graph is whole."""
    for tensor in tensors:
        buffer = Buffer(np.zeros(tensor.type.nbytes, np.uint8))
        module.buffers.append(buffer)
        tensor.carried.pop("buffer", None)
        tensor.buffer = buffer


def put_entry(module: Module, name: str, data: Any) -> Module:
    """A module with this metadata entry, in the place of an older one."""
    return put(module, name, json.dumps(data).encode())


def read_entry(module: Module, name: str) -> dict[str, Any] | None:
    """The data of a metadata entry, or None where there is none."""
    raw = next((known.buffer.bytes.tobytes() for known in module.metadata if known.name == name), None)
    if raw is None:
        return None
    try:
        data = json.loads(raw)
    except (ValueError, RecursionError) as error:
        raise ModelError(f"metadata '{name}' is damaged ({error}); make the file anew") from None
    if not isinstance(data, dict):
        raise ModelError(f"metadata '{name}' is damaged (no object); make the file anew")
    return data
