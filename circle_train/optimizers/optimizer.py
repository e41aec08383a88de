"""What optimizers share: learning rate and schedule, clipping, parameter groups, the nodes of an update."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import field, replace
from fnmatch import fnmatchcase
from functools import cached_property, lru_cache
from typing import Any, ClassVar

from circle_train.errors import ConfigError
from circle_train.ir import DType, Graph, StateKey, Tensor, TensorType
from circle_train.ir.tensor_type import Array
from circle_train.kinds import refuse_misfits
from circle_train.ops.internal.update import ClipByValue, ClipFactor, ScaleBy, Update
from circle_train.optimizers.schedules import Function, Schedule
from circle_train.record import record


@record
class ParameterGroup:
    """Parameters with settings of their own; what is None is as for the others.

    Args:
        parameters: a name, a pattern ("encoder/*"), several of them, or a predicate over names.
        learning_rate: theirs at the start; it follows every later change of the optimizer's in proportion.
        multiplier: instead of `learning_rate`, so many times the optimizer's.
        weight_decay: theirs.
    """

    parameters: str | Sequence[str] | Callable[[str], bool]
    learning_rate: float | None = None
    multiplier: float | None = None
    weight_decay: float | None = None

    def __post_init__(self) -> None:
        refuse_misfits(self)
        names = (self.parameters,) if isinstance(self.parameters, str) else self.parameters
        if not callable(names) and not all(isinstance(name, str) for name in names):
            raise ConfigError(f"ParameterGroup: parameters is {names!r}, expected names or patterns")
        if self.learning_rate is not None and self.multiplier is not None:
            raise ConfigError(
                "ParameterGroup: both learning_rate and multiplier are given, expected one of them"
            )
        for name in ("learning_rate", "multiplier", "weight_decay"):
            value = getattr(self, name)
            if value is not None and not 0 <= value < float("inf"):
                raise ConfigError(f"ParameterGroup: {name} is {value}, expected a number from 0")

    def holds(self, name: str) -> bool:
        """Whether the parameter of this name belongs to the group."""
        if callable(self.parameters):
            return bool(self.parameters(name))
        patterns = (self.parameters,) if isinstance(self.parameters, str) else self.parameters
        return any(name == pattern or fnmatchcase(name, pattern) for pattern in patterns)

    def factor(self, base: float) -> float:
        """Its learning rate in proportion to the optimizer's."""
        if self.learning_rate is not None:
            return self.learning_rate / base
        return 1.0 if self.multiplier is None else self.multiplier


@record
class Optimizer:
    """Base: `slots` are per-weight states, zero at first; `scalars` and `update` are the whole rule.

    `scalars(learning_rate, step)`, step counting from 1, gives the numbers that one step needs;
    `update(w, g, scalars, *slots)` works in place on w and the slots.

    Args:
        learning_rate: a number, a schedule, or a function of the number of updates made so far.
        clip_norm: the largest norm that all gradients together may have; beyond it all are scaled down.
        clip_value: the largest magnitude that one element of a gradient may have; applied before `clip_norm`.
        groups: parameters with settings of their own; the first group that holds a parameter counts.
    """

    has_units: ClassVar[bool] = True
    """Whether its steps are as long as the learning rate says, whatever the gradient's length: integer weights count them in
    what their grids span."""

    learning_rate: float | Schedule | Callable[[int], float] = 1e-3
    """The step size, a schedule of it, or a function of the step's number."""
    clip_norm: float | None = field(default=None, kw_only=True)
    """The largest length that all gradients together may have; longer ones are shortened."""
    clip_value: float | None = field(default=None, kw_only=True)
    """The largest size of a gradient's number."""
    groups: Sequence[ParameterGroup] = field(default=(), kw_only=True)
    """Parameters with settings of their own."""

    def __post_init__(self) -> None:
        refuse_misfits(self)
        rate = self.learning_rate
        if not callable(rate):
            self._require("learning_rate", 0 < rate < float("inf"), "a positive number")
        elif not isinstance(rate, Schedule):
            object.__setattr__(self, "learning_rate", Function(function=rate))
        for name in ("clip_norm", "clip_value"):
            value = getattr(self, name)
            self._require(name, value is None or 0 < value < float("inf"), "a positive number or None")
        object.__setattr__(self, "groups", tuple(self.groups))
        are_groups = all(isinstance(group, ParameterGroup) for group in self.groups)
        self._require("groups", are_groups, "ParameterGroup objects")
        self._check_groups()

    def _check_groups(self) -> None:
        name = type(self).__name__
        if any(group.weight_decay is not None for group in self.groups) and not hasattr(self, "weight_decay"):
            raise ConfigError(f"ParameterGroup: weight_decay is given, but {name} has none; use SGD or AdamW")
        if isinstance(self.learning_rate, Function) and any(g.learning_rate is not None for g in self.groups):
            raise ConfigError(
                f"ParameterGroup: learning_rate is given, but {name}'s is a function; give multiplier"
            )

    @property
    def slots(self) -> tuple[str, ...]:
        return ()

    def scalars(self, learning_rate: float, step: int) -> tuple[float, ...]:
        return (learning_rate,)

    def update(self, w: Array, g: Array, scalars: Array, *slots: Array) -> None:
        raise TypeError(f"{type(self).__name__} defines no update")

    # What compile and the session call; not overridden by rules.

    @property
    def base_learning_rate(self) -> float:
        """What a schedule's factors multiply; without one, the learning rate."""
        rate = self.learning_rate
        if isinstance(rate, Schedule):
            return rate.learning_rate
        assert not callable(rate)
        return rate

    def factor(self, step: int) -> float:
        """The schedule's factor after so many updates."""
        if not isinstance(self.learning_rate, Schedule):
            return 1.0
        try:
            return self.learning_rate.factor(step)
        except OverflowError:
            raise ConfigError(
                f"{self.learning_rate}: its factor after {step} updates is too large for a float; lower its rate"
            ) from None

    @cached_property
    def rules(self) -> tuple[Optimizer, ...]:
        """The bare rule of the ungrouped weights, then that of each group."""
        bare = replace(self, groups=(), clip_norm=None, clip_value=None)
        decays: list[dict[str, Any]] = [
            {} if group.weight_decay is None else {"weight_decay": group.weight_decay}
            for group in self.groups
        ]
        return (bare, *(replace(bare, **changes) for changes in decays))

    def group_of(self, name: str) -> int:
        """0 for a parameter that no group holds, else the group's number from 1."""
        return next((i for i, group in enumerate(self.groups, 1) if group.holds(name)), 0)

    def numbers(
        self, learning_rate: float, step: int, units: Mapping[str, float] | None = None
    ) -> dict[StateKey, tuple[float, ...]]:
        """What the update after so many needs, by where it lies; the learning rate is the schedule's base.

        `units`: by name, of the weights whose steps are counted in one.
        """
        rate = learning_rate * self.factor(step)
        own = [1.0, *(group.factor(self.base_learning_rate) for group in self.groups)]
        found = {scalars_key(i): rule.scalars(rate * own[i], step + 1) for i, rule in enumerate(self.rules)}
        for name, unit in (units or {}).items():
            group = self.group_of(name)
            length, *others = found[scalars_key(group)]
            found[scalars_key(group, name)] = (length * unit, *others)
        return found

    def add_updates(
        self, graph: Graph, weights: Sequence[Tensor], gradients: Mapping[Tensor, Tensor]
    ) -> None:
        """Append the nodes that clip the gradients and update each weight in its memory."""
        trained = [weight for weight in weights if weight in gradients]
        clipped = self._clip(graph, [gradients[weight] for weight in trained])
        scalars: dict[StateKey, Tensor] = {}
        bare = {id(rule): Update(rule) for rule in self.rules}
        for weight, gradient in zip(trained, clipped, strict=True):
            assert weight.state is not None
            group = self.group_of(weight.state.owner)
            rule = self.rules[group]
            counts = rule.has_units and weight.weight.unit is not None
            key = scalars_key(group, weight.state.owner if counts else "")
            if key not in scalars:
                type_ = TensorType(DType.FLOAT32, (len(rule.scalars(1.0, 1)),))
                scalars[key] = Tensor(f"scalars:{key.owner}", type_, state=key)
            slots = [
                Tensor(f"{slot}({weight.name})", gradient.type, state=StateKey(slot, weight.state.owner))
                for slot in rule.slots
            ]
            parts = weight.weight.parts if counts else None
            update = bare[id(rule)] if parts is None else Update(rule, parts)
            graph.emit_all(update, weight, gradient, scalars[key], *slots)

    def _clip(self, graph: Graph, gradients: list[Tensor]) -> list[Tensor]:
        if self.clip_value is not None:
            limit = ClipByValue(self.clip_value)
            gradients = [graph.emit(limit, g, name=f"clipped({g.name})") for g in gradients]
        if self.clip_norm is not None and gradients:
            factor = graph.emit(ClipFactor(self.clip_norm), *gradients, name="clip_factor")
            gradients = [graph.emit(ScaleBy(), g, factor, name=f"scaled({g.name})") for g in gradients]
        return gradients

    def _require(self, name: str, holds: bool, expected: str) -> None:
        """Refuse a setting, naming it."""
        if not holds:
            raise ConfigError(f"{type(self).__name__}: {name} is {getattr(self, name)}, expected {expected}")


@lru_cache(maxsize=1024)
def scalars_key(group: int, weight: str = "") -> StateKey:
    """Where the numbers of a group's next update lie, or of one of its weights that has a unit."""
    return StateKey("scalars", f"{group}:{weight}" if weight else str(group))
