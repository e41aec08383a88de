"""A model file as the packages `tflite` and `circle-schema` read it, which know nothing of us."""

from __future__ import annotations

import importlib
import inspect
import math
from typing import Any

UNIONS = {
    "BuiltinOptions": "BuiltinOptions",
    "BuiltinOptions2": "BuiltinOptions2",
    "Details": "QuantizationDetails",
    "ArraySegments": "SparseIndexVector",
    "ArrayIndices": "SparseIndexVector",
}


def dump(raw: bytes) -> Any:
    """Everything that the generated getters reach, as dicts and lists."""
    package = "tflite" if raw[4:8] == b"TFL3" else "circle_schema.v0_10.circle"
    model = importlib.import_module(f"{package}.Model").Model
    return _table(model.GetRootAs(raw, 0), package)


def _table(table: Any, package: str) -> dict[str, Any]:
    names = [
        name for name, member in vars(type(table)).items() if inspect.isfunction(member) and name != "Init"
    ]
    fields = {}
    for name in names:
        getter = getattr(table, name)
        if f"{name}Length" in names:
            count = getattr(table, f"{name}Length")()
            as_numpy = getattr(table, f"{name}AsNumpy", None)
            if as_numpy is not None and count:
                fields[name] = as_numpy().tolist()
            else:
                fields[name] = [_value(getter(index), package) for index in range(count)]
        elif not name.endswith(("Length", "AsNumpy", "IsNone")):
            value = getter()
            if type(value).__name__ == "Table":
                fields[name] = _union(UNIONS[name], getattr(table, f"{name}Type")(), value, package)
            else:
                fields[name] = _value(value, package)
    return fields


def _value(value: Any, package: str) -> Any:
    return _table(value, package) if hasattr(value, "_tab") else value


def _union(union: str, tag: int, table: Any, package: str) -> Any:
    members = vars(getattr(importlib.import_module(f"{package}.{union}"), union))
    name = next(name for name, value in members.items() if value == tag and isinstance(value, int))
    member = getattr(importlib.import_module(f"{package}.{name}"), name)()
    member.Init(table.Bytes, table.Pos)
    return name, _table(member, package)


def is_nan(value: Any) -> bool:
    return isinstance(value, float) and math.isnan(value)


def differences(one: Any, other: Any, place: str = "") -> list[str]:
    """Where two dumps differ; a string that is left out is an empty one."""
    if isinstance(one, dict) and isinstance(other, dict):
        keys = [*one, *(key for key in other if key not in one)]
        return [d for key in keys for d in differences(one.get(key), other.get(key), f"{place}.{key}")]
    if isinstance(one, list) and isinstance(other, list) and len(one) == len(other):
        pairs = zip(one, other, strict=True)
        return (
            []
            if one == other
            else [d for i, (a, b) in enumerate(pairs) for d in differences(a, b, f"{place}[{i}]")]
        )
    same = one == other or (not one and not other) or (is_nan(one) and is_nan(other))
    return [] if same else [f"{place}: {one!r:.80} against {other!r:.80}"]
