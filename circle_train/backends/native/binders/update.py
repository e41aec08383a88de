"""What becomes of a gradient: it is stored, added to, or moves its weight at once."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np

from circle_train.backends.native.binders.chain import chain
from circle_train.backends.native.engine import abi
from circle_train.backends.native.engine.abi import (
    UPDATE_SCALARS,
    ChainOp,
    Kernel,
    Reduce,
    Scalar,
    UpdateKind,
)
from circle_train.backends.native.engine.binding import (
    Calls,
    Values,
    binds,
    binds_fused,
    call,
    copied,
    floats,
    pointer,
    sizes,
)
from circle_train.backends.native.engine.step import Call
from circle_train.ir import DType, TensorType
from circle_train.ir.tensor_type import Array
from circle_train.ops.axes import Mixes
from circle_train.ops.base import Op, register
from circle_train.ops.internal.fused import Fused
from circle_train.ops.internal.gradient import Accumulate, GuardFinite
from circle_train.ops.internal.update import ClipFactor
from circle_train.optimizers import SGD, Adagrad, Adam, AdamW, AdamWStyle, Optimizer, RMSprop
from circle_train.record import record


def kind_of(rule: Any) -> UpdateKind | None:
    """The kernel's name for a rule; None where it has none."""
    if type(rule) is SGD:
        return (
            (UpdateKind.NESTEROV if rule.nesterov else UpdateKind.MOMENTUM)
            if rule.momentum
            else UpdateKind.SGD
        )
    if type(rule) is AdamW:
        return UpdateKind.ADAMW_TORCH if rule.style is AdamWStyle.TORCH else UpdateKind.ADAMW_ORT
    if type(rule) is RMSprop:
        return RMSPROPS[rule.centered, bool(rule.momentum)]
    return {Adam: UpdateKind.ADAM, Adagrad: UpdateKind.ADAGRAD}.get(type(rule))


RMSPROPS = {
    (False, False): UpdateKind.RMSPROP,
    (True, False): UpdateKind.RMSPROP_CENTERED,
    (False, True): UpdateKind.RMSPROP_MOMENTUM,
    (True, True): UpdateKind.RMSPROP_CENTERED_MOMENTUM,
}
"""By whether it is centered, and has momentum."""
SLOTS = {"momentum": "m", "m": "m", "v": "v", "square": "v", "average": "a"}
"""Where the kernels look for a rule's slots."""


@register("UPDATE_NUMBERS", internal=True)
@record
class UpdateNumbers(Op):
    """A rule's scalars in the places where the kernels look for them, with the rule's constants around."""

    rule: Optimizer
    limit: float = 0.0
    """What no element of a gradient may exceed; 0: nothing."""

    axes = Mixes("its operand is a list of different numbers")

    def infer(self, scalars: TensorType) -> TensorType:
        return TensorType(DType.FLOAT32, (UPDATE_SCALARS,))

    def forward(self, scalars: Array) -> Array:
        numbers = self.constants()
        numbers[Scalar.STEP] = scalars[0]
        if isinstance(self.rule, AdamW):
            numbers[Scalar.DECAY] = 1 - scalars[1]
            numbers[Scalar.SQRT_BIAS2] = 1 / scalars[2]
        return numbers

    def constants(self) -> Array:
        """What stays the same from step to step."""
        rule, numbers = self.rule, np.zeros(UPDATE_SCALARS, np.float32)
        numbers[Scalar.SQRT_BIAS2], numbers[Scalar.LIMIT] = 1, self.limit
        if isinstance(rule, (RMSprop, Adagrad)):
            numbers[Scalar.EPS], numbers[Scalar.DECAY] = rule.epsilon, rule.weight_decay
        if isinstance(rule, Adagrad):
            numbers[Scalar.BETA2] = rule.initial_accumulator_value
        if isinstance(rule, RMSprop):
            numbers[Scalar.BETA1], numbers[Scalar.ONE_MINUS_BETA2] = rule.momentum, 1 - rule.rho
        if isinstance(rule, SGD):
            numbers[Scalar.BETA1], numbers[Scalar.ONE_MINUS_BETA1] = rule.momentum, 1
            numbers[Scalar.DECAY] = rule.weight_decay
        if isinstance(rule, Adam):
            numbers[Scalar.BETA1], numbers[Scalar.BETA2], numbers[Scalar.EPS] = (
                rule.beta_1,
                rule.beta_2,
                rule.epsilon,
            )
            numbers[Scalar.ONE_MINUS_BETA1] = 1 - rule.rounded(rule.beta_1)
            numbers[Scalar.ONE_MINUS_BETA2] = 1 - rule.rounded(rule.beta_2)
        return numbers


@binds(UpdateNumbers)
def update_numbers(op: UpdateNumbers, inputs: Values, outputs: Sequence[Array]) -> Calls:
    """The constants, then over them what moves: scalars[i] as it is, one minus it, or one over it."""
    scalars, numbers = inputs[0], outputs[0]
    calls: list[Call | None] = [*copied(op.constants(), numbers), *copied(scalars[:1], numbers[:1])]
    if isinstance(op.rule, AdamW):
        one = np.ones(1, np.float32)
        decay, root = numbers[Scalar.DECAY :][:1], numbers[Scalar.SQRT_BIAS2 :][:1]
        calls += chain(lambda b, one, x: b.emit(ChainOp.SUB, one, x), [one, scalars[1:2]], decay) or [None]
        calls += chain(lambda b, x: b.emit(ChainOp.RECIPROCAL, x), [scalars[2:3]], root) or [None]
    made = [call for call in calls if call is not None]
    return made if len(made) == len(calls) else None


@record
class Fate:
    """What becomes of one gradient: `kind` names the rule, NONE stores it or (`accumulate`) adds it to what is there."""

    kind: UpdateKind = UpdateKind.NONE
    accumulate: bool = False


def gradient_only(out: Array) -> abi.Update:
    """Store the gradient."""
    return abi.Update(g=pointer(out))


def update_of(
    fate: Fate | None, name: str, given: dict[str, Any], made: dict[str, Array]
) -> abi.Update | None:
    """The struct for the gradient of the weight called `name`; roles are name.w, name.m, name.v, name.g."""
    if fate is None:
        return None
    if fate.kind is UpdateKind.NONE:
        return abi.Update(
            g=pointer(given[f"{name}.g"] if fate.accumulate else made[name]), accumulate=fate.accumulate
        )
    pointers = {role: pointer(given.get(f"{name}.{role}")) for role in ("w", "m", "v", "a", "factor")}
    if name in made:  # a part of the weight (see `in_part`)
        pointers["w"] = pointer(made[name])
    unit = given.get(f"{name}.unit")
    if unit is not None:
        behind = given[f"{name}.w"].shape[int(np.argmax(unit.shape)) + 1 :]
        pointers |= {"unit": pointer(unit), "unit_each": prod(behind), "unit_count": unit.size}
    return abi.Update(scalars=pointer(given[f"{name}.numbers"]), kind=int(fate.kind), **pointers)


def in_part(fate: Fate | None, given: dict[str, Any], made: dict[str, Array], moved: Calls) -> Calls:
    """A part of a weight is taken out before it is moved, and put back where it was; the whole is moved where it lies."""
    part = made.get("w")
    if part is None or fate is None or fate.kind is UpdateKind.NONE or moved is None:
        return moved
    w, count = given["w.w"], part.shape[-1]
    there, here = w.reshape(-1, w.shape[-1])[:, :count], part.reshape(-1, count)
    return [_rows(there, here), *moved, _rows(here, there)]


def _rows(source: Array, target: Array) -> Call:
    """A copy of rows, which may lie apart."""
    steps = (sizes([stride // array.itemsize for stride in array.strides]) for array in (source, target))
    args = abi.CopyArgs(pointer(source), pointer(target), sizes(source.shape), *steps, 2, source.itemsize)
    return call(Kernel.COPY, args, source, target)


@binds_fused("update")
def update(op: Fused, given: dict[str, Any], outputs: Sequence[Array]) -> Calls:
    """An update whose gradient lies in memory."""
    g = given["g"]
    if not floats(g, *outputs):
        return None
    made = dict(zip("w", outputs, strict=False))
    rule = update_of(op.settings, "w", given, made)
    moved = [call(Kernel.UPDATE, abi.UpdateArgs(pointer(g), g.size, rule), *given.values(), *outputs)]
    return in_part(op.settings, given, made, moved)


@binds(Accumulate)
def accumulate(op: Accumulate, inputs: Values, outputs: Sequence[Array]) -> Calls:
    total, g = inputs
    if not floats(total, g):
        return None
    return chain(lambda b, x, y: b.emit(ChainOp.ADD, x, y), [total, g], total)


@binds(ClipFactor)
def clip_factor(op: ClipFactor, inputs: Values, outputs: Sequence[Array]) -> Calls:
    """From the sums of squares of all gradients what they are multiplied by."""
    if not floats(*inputs, outputs[0]):
        return None
    sums = np.empty(len(inputs), np.float32)
    made: list[Call] = []
    for g, total in zip(inputs, np.split(sums, len(inputs)), strict=True):
        squares = int(Reduce.SUM_SQUARES)
        reduced = abi.ReduceArgs(pointer(g), pointer(total), sizes([g.size]), (1,), 1, squares, 1.0, 0)
        made.append(call(Kernel.REDUCE, reduced, g, sums))
    args = abi.ClipFactorArgs(pointer(sums), pointer(outputs[0]), len(inputs), op.max_norm)
    return [*made, call(Kernel.CLIP_FACTOR, args, sums, outputs[0])]


@binds(GuardFinite)
def guard(op: GuardFinite, inputs: Values, outputs: Sequence[Array]) -> Calls:
    if not floats(inputs[0]):
        return None
    return [call(Kernel.GUARD_FINITE, abi.GuardArgs(pointer(inputs[0]), inputs[0].size), inputs[0], op)]
