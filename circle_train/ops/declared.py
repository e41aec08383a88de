"""What an operator's class declares by its signatures, read and validated when it is registered."""

from __future__ import annotations

import inspect
from functools import cache
from itertools import chain
from typing import Any

from circle_train.ops.axes import Axes
from circle_train.record import record


@record
class InputSpec:
    """One parameter of `forward`."""

    name: str
    optional: bool = False
    variadic: bool = False


@record
class GradientSpec:
    """The method that computes an input's gradient, and the names of what it reads."""

    method: str
    needs: tuple[str, ...]
    is_joint: bool = False
    """Whether the method gives the gradients of other inputs too, by name."""


def read_inputs(cls: Any) -> tuple[InputSpec, ...]:
    if hasattr(cls.forward, "__signature__"):
        parameters = list(inspect.signature(cls.forward).parameters.values())[1:]
        variadic = inspect.Parameter.VAR_POSITIONAL
        return tuple(InputSpec(p.name, p.default is None, p.kind is variadic) for p in parameters)
    code, defaults = cls.forward.__code__, cls.forward.__defaults__ or ()
    names = code.co_varnames[1 : code.co_argcount]
    required = len(names) - len(defaults)
    specs = [
        InputSpec(name, i >= required and defaults[i - required] is None) for i, name in enumerate(names)
    ]
    if code.co_flags & inspect.CO_VARARGS:
        specs.append(InputSpec(code.co_varnames[code.co_argcount + code.co_kwonlyargcount], variadic=True))
    return tuple(specs)


def _parameters(method: Any) -> tuple[str, ...]:
    """Names behind self; read off the code object, because inspect.signature would take half of our import time."""
    if hasattr(method, "__signature__"):
        return tuple(inspect.signature(method).parameters)[1:]
    code = method.__code__
    return tuple(code.co_varnames[1 : code.co_argcount])


@cache
def _own(cls: type) -> tuple[str, ...]:
    """The gradients that a class itself has, looked for once for all that derive from it."""
    return tuple(name for name in vars(cls) if name.startswith("grad_"))


def read_gradients(cls: Any) -> dict[str, GradientSpec]:
    names = {spec.name for spec in cls.inputs}
    known = {"dy", "dys", "y", "y_shape", "index", *names, *(f"{name}_shape" for name in names)}
    methods = {name.removeprefix("grad_"): name for name in sorted({*chain(*map(_own, cls.__mro__))})}
    gradients = {}
    for wrt, method in {**methods, **dict.fromkeys(cls.together, "grads")}.items():
        if wrt not in names:
            raise TypeError(f"{cls.__name__}.{method}: forward has no input '{wrt}', only {sorted(names)}")
        needs = _parameters(getattr(cls, method))
        if unknown := set(needs) - known:
            raise TypeError(f"{cls.__name__}.{method} asks for {sorted(unknown)}; there are {sorted(known)}")
        if "y" in needs and hasattr(cls, "fused_activation_function"):
            raise TypeError(f"{cls.__name__}.{method} asks for y, which its fused activation has overwritten")
        gradients[wrt] = GradientSpec(method, needs, method == "grads")
    return gradients


def read_axes(cls: Any) -> None:
    """Add the operands of `axes` to what must be static; refuse names that are no inputs, and formulas of another forward."""
    if isinstance(cls.axes, Axes):
        cls.static_inputs = (*cls.static_inputs, *cls.axes.operands)
    if unknown := {*cls.static_inputs, *cls.gradient_formulas} - {spec.name for spec in cls.inputs}:
        raise TypeError(f"{cls.__name__} speaks of {sorted(unknown)}, which forward has not")
    computed = {
        "formula": ["forward"],
        "gradient_formulas": [f"grad_{name}" for name in cls.gradient_formulas],
    }
    for formula, methods in computed.items():
        for method in methods if getattr(cls, formula) else ():
            if _owner(cls, method) < _owner(cls, formula):
                raise TypeError(f"{cls.__name__} has a {method} of its own, but the {formula} of a base")


def _owner(cls: type[Any], name: str) -> int:
    """How many classes up the attribute is defined."""
    return next(i for i, base in enumerate(cls.__mro__) if name in vars(base))
