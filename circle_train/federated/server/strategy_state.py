"""What a strategy has come to remember since its run began, as plain data and arrays: moments, momentum, norms."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from flwr.app import ArrayRecord
from flwr.serverapp.strategy import Strategy

from circle_train.errors import CheckpointError, shown
from circle_train.federated.records import decoded, record_of
from circle_train.ir.tensor_type import Array

Tree = dict[str, Any]
"""JSON; an array is {"array": its name}."""


class Unknown(Exception):
    """A value that is neither plain data nor arrays: a function, a model."""


def snapshot(strategy: Strategy) -> tuple[Tree, dict[str, Array]]:
    """Every attribute that can be told, those of strategies inside included."""
    arrays: dict[str, Array] = {}
    return _attributes(strategy, "", arrays), arrays


def restore(strategy: Strategy, tree: Mapping[str, Any], arrays: Mapping[str, Array]) -> None:
    """Set the attributes that the tree tells of: it may not put something else in the place of what a strategy does."""
    known = snapshot(strategy)[0]
    for name, told in tree.items():
        is_new = name not in known and name.isidentifier() and not hasattr(strategy, name)
        if not is_new and not (name in known and _could_become(known[name], told)):
            raise CheckpointError(
                f"the run's file sets '{name}' of {type(strategy).__name__} to {shown(told)}; remove it to begin anew"
            )
        if "strategy" in told:
            restore(getattr(strategy, name), told["strategy"], arrays)
        else:
            setattr(strategy, name, _value(told, arrays))


def _could_become(before: Tree, told: Mapping[str, Any]) -> bool:
    """What is not there yet may become anything but a strategy; the rest stays what it is."""
    if before == {"plain": None}:
        return "strategy" not in told
    ((kind, value),) = before.items()
    if kind != "plain":
        return kind in told
    numbers = (int, float)
    return type(told.get("plain")) in (numbers if type(value) in numbers else (type(value),))


def changed(strategy: Strategy, before: tuple[Tree, dict[str, Array]]) -> tuple[Tree, dict[str, Array]]:
    """Only what is not as it was: settings stay those of whoever goes on with the run."""
    tree, arrays = snapshot(strategy)
    kept = _differing(tree, before[0], arrays, before[1])
    named = set(_arrays_of(kept))
    return kept, {name: array for name, array in arrays.items() if name in named}


def _attributes(strategy: Strategy, path: str, arrays: dict[str, Array]) -> Tree:
    tree: Tree = {}
    for name, value in vars(strategy).items():
        try:
            if isinstance(value, Strategy):
                tree[name] = {"strategy": _attributes(value, f"{path}{name}.", arrays)}
            else:
                found: dict[str, Array] = {}
                tree[name] = _told(value, f"{path}{name}", found)
                arrays.update(found)
        except Unknown:
            continue
    return tree


def _told(value: Any, path: str, arrays: dict[str, Array]) -> Tree:
    if isinstance(value, np.generic):
        value = value.item()
    if value is None or isinstance(value, (bool, int, float, str)):
        return {"plain": value}
    if isinstance(value, np.ndarray) and value.dtype.kind in "fiub":
        name = f"{path}#{len(arrays)}"
        arrays[name] = np.array(value)
        return {"array": name}
    if isinstance(value, ArrayRecord):
        return {"record": _told({n: decoded(a) for n, a in value.items()}, path, arrays)["dict"]}
    if isinstance(value, (list, tuple)):
        return {"list": [_told(item, path, arrays) for item in value]}
    if isinstance(value, dict) and all(isinstance(key, str) for key in value):
        return {"dict": {key: _told(item, path, arrays) for key, item in value.items()}}
    raise Unknown


def _value(told: Mapping[str, Any], arrays: Mapping[str, Array]) -> Any:
    kind, content = next(iter(told.items()))
    if kind == "array":
        return np.array(arrays[content])
    if kind == "record":
        return record_of({name: _value(item, arrays) for name, item in content.items()})
    if kind == "list":
        return [_value(item, arrays) for item in content]
    if kind == "dict":
        return {name: _value(item, arrays) for name, item in content.items()}
    return content


def _differing(new: Tree, old: Tree, arrays: Mapping[str, Array], before: Mapping[str, Array]) -> Tree:
    kept: Tree = {}
    for name, told in new.items():
        earlier = old.get(name)
        if "strategy" in told and earlier and "strategy" in earlier:
            inner = _differing(told["strategy"], earlier["strategy"], arrays, before)
            kept.update({name: {"strategy": inner}} if inner else {})
        elif told != earlier or any(not _same(arrays[a], before[a]) for a in _arrays_of(told)):
            kept[name] = told
    return kept


def _same(one: Array, other: Array) -> bool:
    return one.shape == other.shape and bool((one == other).all())


def _arrays_of(told: Any) -> list[str]:
    """Names of the arrays in a tree."""
    if isinstance(told, list):
        return [name for item in told for name in _arrays_of(item)]
    if not isinstance(told, dict):
        return []
    if isinstance(told.get("array"), str):
        return [told["array"]]
    return [name for item in told.values() for name in _arrays_of(item)]
