"""Recurrent operators: cells applied along time, one direction or both.

A state that is absent starts as zeros, as TFLite's variable tensors do after a reset.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Sequence
from typing import Any, ClassVar, TypeVar

import numpy as np

from circle_train.errors import ModelError, UnsupportedOpError
from circle_train.ir import TensorType
from circle_train.ir.tensor_type import Array
from circle_train.ops.attributes import Activation
from circle_train.ops.axes import Axes, Steps
from circle_train.ops.base import Example, Op, random, register
from circle_train.ops.checks import same_size
from circle_train.ops.layers.recurrence import Cell, RnnCell
from circle_train.ops.window import check_floats, check_rank
from circle_train.record import record

Class = TypeVar("Class", bound="type[Swept]")
STATES = ("h", "c")
AUXILIARY, LENGTHS = "auxiliary", "lengths"


def both(names: Iterable[str]) -> tuple[str, ...]:
    """Names of the forward direction, then of the backward one."""
    names = tuple(names)
    return (*(f"fw_{name}" for name in names), *(f"bw_{name}" for name in names))


def with_inputs(names: Sequence[str], needed: set[str]) -> Callable[[Class], Class]:
    """Give `forward` its input names and all but cross links a gradient; one sweep in time gives them all."""
    kind = inspect.Parameter.KEYWORD_ONLY
    empty = inspect.Parameter.empty
    own = inspect.Parameter("self", inspect.Parameter.POSITIONAL_OR_KEYWORD)
    given = [inspect.Parameter(name, kind, default=empty if name in needed else None) for name in names]
    values = [parameter.replace(default=empty) for parameter in given]

    def add(cls: Class) -> Class:
        def forward(self: Swept, *values: Array | None) -> list[Array]:
            return self.run(dict(zip(names, values, strict=True)))

        forward.__signature__ = inspect.Signature([own, *given])  # type: ignore[attr-defined]
        cls.forward = forward  # type: ignore[method-assign,assignment]
        cls.parameters = tuple(
            name for name in names if name.split("_")[-1] not in ("x", AUXILIARY, LENGTHS, *STATES)
        )
        cls.together = tuple(
            name for name in names if name not in (AUXILIARY, LENGTHS) and "a" not in name.split("_")
        )
        cls.grads = grads  # type: ignore[attr-defined]
        return cls

    def grads(self: Swept, *, dys: Sequence[Array], **values: Array | None) -> dict[str, Array]:
        given = [name for name, value in values.items() if value is not None]
        found = self.back(dys, values)
        return {name: found[name] if name in found else np.zeros_like(values[name]) for name in given}

    grads.__signature__ = inspect.Signature([own, *values, inspect.Parameter("dys", kind)])  # type: ignore[attr-defined]
    return add


class Swept(Op):
    """Computed step after step, and back in one sweep; operands come by name, None where they are absent."""

    def run(self, values: dict[str, Any]) -> list[Array]:
        raise NotImplementedError(f"{self.name} has no steps")

    def back(self, dys: Sequence[Array], values: dict[str, Any]) -> dict[str, Array]:
        """The gradients of operands, by name."""
        raise NotImplementedError(f"{self.name} has no way back")


@record
class Recurrent(Swept):
    """Runs its cells over x; the activation belongs to the cell, the engine must not apply it."""

    prefixes: ClassVar[tuple[str, ...]] = ("",)
    """Of the weights' names, one for each direction; the second runs from the last step to the first."""
    gates: ClassVar[int] = 1
    """Whose weights lie below each other in one tensor."""
    axes: ClassVar[Axes] = Steps(("h", "c"))

    @property
    def activation(self) -> Activation:
        return Activation.NONE

    @property
    def is_time_major(self) -> bool:
        return bool(getattr(self, "time_major", False))

    @property
    def is_merged(self) -> bool:
        return bool(getattr(self, "merge_outputs", False))

    def cell(self, weights: dict[str, Any]) -> Cell:
        raise NotImplementedError(f"{self.name} has no cell")

    def units(self, shapes: dict[str, TensorType | None]) -> int:
        """Features of one direction's output."""
        recurrent = next(shapes[name] for name in ("r", "r_f") if name in shapes)
        return recurrent.shape[1] if recurrent is not None else -1

    def infer(self, *types: TensorType | None) -> Sequence[TensorType]:
        values = dict(zip((spec.name for spec in self.inputs), types, strict=True))
        x = types[0]
        assert x is not None
        check_rank(self.name, 3, input=x)
        check_floats(self.name, *types)
        if values.get(AUXILIARY) is not None:
            raise UnsupportedOpError(
                f"{self.name}: the auxiliary input {values[AUXILIARY]} (cross links of layers) is not "
                "computed; export the model without cross links"
            )
        sizes = []
        for weights in self.split(values):
            self.check(x, weights)
            self.check_states(x.shape[1 if self.is_time_major else 0], weights)
            sizes.append(self.units(weights))
        shapes = [(*x.shape[:2], sum(sizes))] if self.is_merged else [(*x.shape[:2], size) for size in sizes]
        return [TensorType(x.dtype, shape) for shape in shapes]

    def check(self, x: TensorType, weights: dict[str, TensorType | None]) -> None:
        """Refuse weights that do not take x's features."""
        for name in ("w", "w_i", "w_f", "w_g", "w_o"):
            w = weights.get(name)
            if w is not None and (w.rank != 2 or w.shape[1] != x.shape[2]):
                raise ModelError(
                    f"{self.name}: input has {x.shape[2]} features, weights '{name}' are {w} (input {x}); "
                    "the weights' last dimension must be the input's features"
                )
        rank = 1 if getattr(self, "diagonal_recurrent_tensors", False) else 2
        for name in ("r", "r_i", "r_f", "r_g", "r_o"):
            check_rank(self.name, rank, **{f"the recurrent weights '{name}'": weights.get(name)})
        self.check_layer(weights)

    def check_layer(self, weights: dict[str, TensorType | None]) -> None:
        """Refuse weights of which some are missing, or that are of layers of different sizes: kernels believe one of them."""
        prefix, gate = self.prefixes[0], ("w_i", "r_i", "b_i")
        needed = [
            s.name.removeprefix(prefix) for s in self.inputs if not s.optional and s.name.startswith(prefix)
        ]
        if any(
            weights.get(name) is not None for name in gate
        ):  # without them all it is coupled to the forget gate
            needed += gate
        missing = [name for name in needed if name != "x" and weights.get(name) is None]
        if missing:
            raise ModelError(f"{self.name}: its weights '{missing[0]}' are missing: the file is damaged")
        here = {name: t for name, t in weights.items() if t is not None}
        out, projection = self.units(weights), here.get("w_p")
        rows = {
            t.shape[0]
            for name, t in here.items()
            if name[0] in "wrbpn" and name not in ("w_p", "b_p") and t.rank
        }
        columns = {t.shape[1] for name, t in here.items() if name[0] == "r" and t.rank == 2}
        cells = out if projection is None else projection.shape[-1]
        if rows != {self.gates * cells} or not columns <= {out}:
            raise ModelError(
                f"{self.name}: its weights have {sorted(rows)} rows, expected {self.gates * cells} each, and those of "
                f"the state {sorted(columns)} columns, expected {out}: the file is damaged"
            )

    def check_states(self, samples: int, weights: dict[str, TensorType | None]) -> None:
        """Refuse states that are not a row for each sample, as LiteRT does."""
        out, projection = self.units(weights), weights.get("w_p")
        sizes = {"h": out, "c": out if projection is None else projection.shape[-1]}
        for name, size in sizes.items():
            state = weights.get(name)
            if state is not None and not (
                state.rank == 2 and same_size(state.shape[0], samples) and same_size(state.shape[1], size)
            ):
                raise ModelError(
                    f"{self.name}: state '{name}' is {state}, expected {samples}×{size}: samples × units"
                )

    def split(self, values: dict[str, Any]) -> list[dict[str, Any]]:
        """The weights of every direction without their prefix."""
        weights = {name: value for name, value in values.items() if name not in ("x", AUXILIARY)}
        return [
            {name.removeprefix(prefix): value for name, value in weights.items() if name.startswith(prefix)}
            for prefix in self.prefixes
        ]

    def run(self, values: dict[str, Any]) -> list[Array]:
        x = self.in_time(values["x"])
        ys = []
        for weights, turn in zip(self.split(values), (slice(None), slice(None, None, -1)), strict=False):
            ys.append(self.in_time(self.cell(weights).run(x[turn])[0][turn]))
        return [np.concatenate(ys, axis=-1)] if self.is_merged else ys

    def back(self, dys: Sequence[Array], values: dict[str, Any]) -> dict[str, Array]:
        x = self.in_time(values["x"])
        parts = self.split(values)
        if self.is_merged:
            dys = np.split(dys[0], [dys[0].shape[-1] // 2], axis=-1)
        result: dict[str, Array] = {"x": np.zeros_like(values["x"])}
        turns = (slice(None), slice(None, None, -1))
        for prefix, weights, dy, turn in zip(self.prefixes, parts, dys, turns, strict=False):
            cell = self.cell(weights)
            gradients = cell.back(self.in_time(dy)[turn], x[turn], cell.run(x[turn])[1])
            result["x"] = result["x"] + self.in_time(gradients.pop("x")[turn])
            result.update({prefix + name: gradient for name, gradient in gradients.items()})
        return result

    def in_time(self, x: Array) -> Array:
        """To time × batch × features and back."""
        return x if self.is_time_major else np.swapaxes(x, 0, 1)

    def flops(self, inputs: Sequence[TensorType | None], outputs: Sequence[TensorType]) -> int:
        x = inputs[0]
        steps = x.shape[0] * x.shape[1] if x else 0
        matrices = [t.size for t in inputs[1:] if t is not None and t.rank == 2]
        return 2 * steps * sum(matrices)


def example(op: Recurrent, x: Array, values: dict[str, Array]) -> Example:
    """Inputs in their order, absent ones as None."""
    return Example(op, tuple(x if spec.name == "x" else values.get(spec.name) for spec in op.inputs))


def rnn_values(prefix: str, states: bool = True) -> dict[str, Array]:
    """Weights of an RNN with 3 inputs, 4 units and 2 samples, for the examples."""
    values = {"w": random(4, 3), "r": random(4, 4, seed=1), "b": random(4, seed=2), "h": random(2, 4, seed=3)}
    return {prefix + name: value for name, value in values.items() if states or name != "h"}


@record
class Rnn(Recurrent):
    """Options that the two RNN operators share."""

    time_major: bool = False
    fused_activation_function: Activation = Activation.NONE

    def cell(self, weights: dict[str, Any]) -> Cell:
        return RnnCell(weights, self.fused_activation_function)


@register("UNIDIRECTIONAL_SEQUENCE_RNN", "SequenceRNNOptions")
@with_inputs(("x", "w", "r", "b", "h"), {"x", "w", "r", "b"})
@record
class UnidirectionalSequenceRnn(Rnn):
    asymmetric_quantize_inputs: bool = False

    @classmethod
    def examples(cls) -> Iterable[Example]:
        for activation in (Activation.NONE, Activation.TANH, Activation.RELU, Activation.RELU6):
            yield example(cls(False, activation), random(2, 5, 3), rnn_values(""))
        yield example(cls(True, Activation.TANH), random(5, 2, 3), rnn_values("", states=False))


@register("BIDIRECTIONAL_SEQUENCE_RNN", "BidirectionalSequenceRNNOptions")
@with_inputs(("x", *both("wrbh"), AUXILIARY, *both("a")), {"x", *both("wrb")})
@record
class BidirectionalSequenceRnn(Rnn):
    merge_outputs: bool = False
    asymmetric_quantize_inputs: bool = False

    prefixes = ("fw_", "bw_")

    @classmethod
    def examples(cls) -> Iterable[Example]:
        for merge in (False, True):
            values = {**rnn_values("fw_"), **rnn_values("bw_", states=merge)}
            yield example(cls(False, Activation.TANH, merge), random(2, 5, 3), values)
            yield example(cls(True, Activation.TANH, merge), random(5, 2, 3), values)
