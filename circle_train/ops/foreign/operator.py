"""One class for all of them: what is computed, and of which types the results are, stands in functions by ONNX's name."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from functools import cached_property
from typing import Any

import numpy as np

from circle_train.errors import ModelError, UnsupportedOpError
from circle_train.ir import DType, TensorType
from circle_train.ir.tensor_type import Array
from circle_train.ops.axes import Mixes
from circle_train.ops.base import Example, Op, register
from circle_train.record import record

Attributes = dict[str, Any]
Compute = Callable[[Sequence[Array | None], Attributes], Sequence[Array]]
Types = Callable[[Sequence[TensorType | None], Attributes], Sequence[TensorType]]
FUNCTIONS: dict[str, tuple[Compute, Types]] = {}
"""By ONNX's name of the operator."""
CONVERTED = "converted"
"""The entry of operators that Circle's express once all their inputs are known: the converter provides it."""


def computes(name: str, types: Types) -> Callable[[Compute], Compute]:
    """Register a function for an ONNX operator, with the rule of its results' types."""

    def add(function: Compute) -> Compute:
        FUNCTIONS[name] = (function, types)
        return function

    return add


@register("CUSTOM:circle_train.onnx")
@record
class Foreign(Op):
    """An ONNX operator with its attributes, as JSON in the custom options."""

    custom_options: bytes = b""

    axes = Mixes("it is ONNX's own")

    @classmethod
    def of(cls, operator: str, attributes: Attributes, **facts: Any) -> Foreign:
        text = {"operator": operator, "attributes": attributes, **facts}
        return cls(json.dumps(text, default=_as_list, sort_keys=True).encode())

    @cached_property
    def facts(self) -> dict[str, Any]:
        try:
            facts = json.loads(self.custom_options)
            return {"operator": str(facts["operator"]), "attributes": dict(facts["attributes"])} | facts
        except (ValueError, KeyError, TypeError) as error:
            raise ModelError(
                f"{self.name}: its options are damaged ({error!r}); convert the model anew"
            ) from None

    @property
    def _functions(self) -> tuple[Compute, Types]:
        name = CONVERTED if CONVERTED in self.facts else self.facts["operator"]
        if name not in FUNCTIONS:
            raise UnsupportedOpError(
                f"ONNX's {self.facts['operator']} is not computed; cut the model before it"
            )
        return FUNCTIONS[name]

    def infer(self, *xs: TensorType | None) -> Sequence[TensorType]:
        if all(x is None or x.value is not None for x in xs):
            results = [np.asarray(y) for y in self.forward(*(None if x is None else x.value for x in xs))]
            return [TensorType.of(y) for y in results]
        found = self._functions[1](xs, self.facts if CONVERTED in self.facts else self.facts["attributes"])
        for type_ in found:
            if any(isinstance(dim, float) for dim in type_.shape):
                raise ModelError(f"{self.name}: its options make a result {type_}; convert the model anew")
        return found

    def forward(self, *xs: Array | None) -> Sequence[Array]:
        return self._functions[0](xs, self.facts if CONVERTED in self.facts else self.facts["attributes"])

    @classmethod
    def examples(cls) -> Iterable[Example]:
        x = np.array([[1, 0], [2, 5]], np.float32)
        yield Example(cls.of("Det", {}), (x,), differentiable=False)
        yield Example(cls.of("BitwiseAnd", {}), (np.array([6, 5], np.int32), np.array([3, 4], np.int32)))
        yield Example(cls.of("Unique", {"sorted": 1}), (np.array([2, 1, 2], np.int32),))


def _as_list(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        return value.tolist()
    raise TypeError(f"an attribute is a {type(value).__name__}")


# Rules of types


def same(xs: Sequence[TensorType | None], attributes: Attributes) -> list[TensorType]:
    """As the first input."""
    return [TensorType(first(xs).dtype, first(xs).shape)]


def broadcast(xs: Sequence[TensorType | None], attributes: Attributes) -> list[TensorType]:
    """All inputs' shapes together."""
    given = [x for x in xs if x is not None]
    if all(x.is_static for x in given):
        return [TensorType(given[0].dtype, np.broadcast_shapes(*(x.shape for x in given)))]
    return [TensorType(given[0].dtype, (-1,) * max(x.rank for x in given))]


def first(xs: Sequence[TensorType | None]) -> TensorType:
    if not xs or xs[0] is None:
        raise ModelError("ONNX operator lacks its first input: the file is damaged")
    return xs[0]


def open_of(rank: int, dtype: DType | None = None) -> Types:
    """That rank, of sizes that depend on the data; of the first input's element type unless one is given."""

    def rule(xs: Sequence[TensorType | None], attributes: Attributes) -> list[TensorType]:
        return [TensorType(first(xs).dtype if dtype is None else dtype, (-1,) * rank)]

    return rule
