"""Dataclasses that cost nothing to define.

`dataclasses.dataclass` reads the annotations of every class and compiles up to eight methods for it, a third of a millisecond
each: three hundred classes of operators, losses, settings and programs were most of our import time. Here the fields are read
when somebody first asks for them, as making an object does, and the methods are written once; only who is made often and can
be changed (`mutable`) has an `__init__` compiled, by its first object. `dataclasses.fields`, `replace`, `field` and
`__post_init__` work as ever.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, Field, FrozenInstanceError, dataclass, field, fields
from inspect import Parameter, Signature
from operator import attrgetter
from threading import RLock
from typing import TYPE_CHECKING, Any, TypeVar

from circle_train.likeness import likeness

if TYPE_CHECKING:
    from typing_extensions import dataclass_transform
else:

    def dataclass_transform(**_: Any) -> Any:
        return lambda decorator: decorator


Class = TypeVar("Class", bound=type)
_LOCK = RLock()
"""Several threads may ask for the fields of one class at once; none is at it when the process forks."""
if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_LOCK.acquire, after_in_parent=_LOCK.release, after_in_child=_LOCK.release)


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
def record(cls: Class) -> Class:
    """As @dataclass(frozen=True), which its subclasses may also be decorated with."""
    made: Any = cls
    _Fields(made, frozen=True)
    for method in (__init__, __repr__, __eq__, __hash__, __setattr__, __delattr__):
        if method.__name__ not in vars(made) and getattr(made, method.__name__) is not method:
            setattr(made, method.__name__, method)
    made.__signature__ = _ARGUMENTS
    return cls


@dataclass_transform(eq_default=False, field_specifiers=(field,))
def mutable(cls: Class) -> Class:
    """As @dataclass(eq=False)."""
    made: Any = cls

    def first(self: Any, *args: Any, **kwargs: Any) -> None:
        with _LOCK:
            if made.__init__ is first:
                heir: Any = type(
                    made.__name__, (made,), {}
                )  # has the same fields, and nobody makes objects of it meanwhile
                made.__init__ = dataclass(repr=False, eq=False)(heir).__init__
        made.__init__(self, *args, **kwargs)

    _Fields(made, frozen=False)
    made.__init__ = first
    if "__repr__" not in vars(made):
        made.__repr__ = __repr__
    return cls


class _Fields:
    """`__dataclass_fields__` of a class until somebody asks, which puts those there that `dataclass` makes."""

    def __init__(self, cls: Any, frozen: bool) -> None:
        self.cls, self.frozen = cls, frozen
        self.declared: dict[str, Field[Any]] | None = None
        cls.__dataclass_fields__ = self
        if cls.__doc__ is None:
            cls.__doc__ = ""  # else dataclass would write one, of a signature

    def __get__(self, instance: object, owner: type) -> dict[str, Field[Any]]:
        with _LOCK:
            if vars(self.cls)["__dataclass_fields__"] is self:
                self._read()
        found: dict[str, Field[Any]] = vars(self.cls)["__dataclass_fields__"]
        return found

    def _read(self) -> None:
        """From the beginning, where Ctrl-C came in between before: `dataclass` takes what `field()` gave out of the class."""
        if self.declared is None:
            self.declared = {name: one for name, one in vars(self.cls).items() if isinstance(one, Field)}
        for name, one in self.declared.items():
            setattr(self.cls, name, one)
        bases = self.cls.__mro__[1:]
        for base in bases:
            getattr(base, "__dataclass_fields__", None)
        try:
            _declare_frozen(bases, False)
            dataclass(init=False, repr=False, eq=False)(self.cls)
        finally:
            _declare_frozen(self.cls.__mro__, self.frozen)


class _Arguments:
    """`__signature__` of a class whose __init__ is ours: made from its fields when asked, as defining must cost nothing."""

    def __get__(self, instance: object, owner: Any) -> Signature:
        if instance is not None or owner.__init__ is not __init__:
            raise AttributeError("__signature__")
        given = sorted((one for one in fields(owner) if one.init), key=lambda one: one.kw_only is True)
        return Signature([_argument(one) for one in given])


_ARGUMENTS = _Arguments()


def _argument(one: Field[Any]) -> Parameter:
    default = one.default if one.default_factory is MISSING else one.default_factory()
    return Parameter(
        one.name,
        Parameter.KEYWORD_ONLY if one.kw_only else Parameter.POSITIONAL_OR_KEYWORD,
        default=Parameter.empty if default is MISSING else default,
        annotation=one.type,
    )


def _declare_frozen(classes: Sequence[Any], frozen: bool) -> None:
    """dataclass() refuses a base of the other kind, and asks the base's own word for it."""
    for one in classes:
        if "__dataclass_params__" in vars(one):
            one.__dataclass_params__.frozen = frozen


_Slot = tuple[str, bool, bool, Any, Any]


class _Plan:
    """What `dataclasses.fields` says of a class, which takes its time, as making and comparing its objects need it."""

    def __init__(self, cls: type) -> None:
        found = fields(cls)
        self.slots: list[_Slot] = [
            (one.name, one.init, one.kw_only is True, one.default, one.default_factory) for one in found
        ]
        self.key = _key([one.name for one in found if one.compare])
        """What an object is compared by."""
        self.names = [one.name for one in found]
        self.fields = frozenset(self.names)
        self.count = len(found) if all(one.init and not one.kw_only for one in found) else -1
        """Of arguments that, in the order of the fields, are all that there are."""
        self.defaults = {one.name: one.default for one in found if one.default is not MISSING}
        self.finishes = hasattr(cls, "__post_init__")


def _key(names: Sequence[str]) -> Callable[[Any], Any]:
    """Gives these attributes of an object; as a tuple, since two arrays alone are not simply equal or not."""
    if len(names) > 1:
        return attrgetter(*names)
    return (lambda self: (getattr(self, names[0]),)) if names else lambda self: ()


_PLANS: dict[type, _Plan] = {}


def _planned(cls: type) -> _Plan:
    plan = _PLANS.get(cls)
    if plan is None:
        plan = _PLANS[cls] = _Plan(cls)
    return plan


def __init__(self: Any, *args: Any, **kwargs: Any) -> None:
    plan = _PLANS.get(self.__class__) or _planned(self.__class__)
    held = self.__dict__
    if not kwargs and len(args) == plan.count:
        held.update(zip(plan.names, args, strict=True))
    elif args or plan.count < 0:
        _assign(self, plan, args, kwargs)
    else:
        held.update(plan.defaults)
        held.update(kwargs)
        if held.keys() != plan.fields:  # something is to be made, missing or surplus
            held.clear()
            _assign(self, plan, args, kwargs)
    if plan.finishes:
        self.__post_init__()


def _assign(self: Any, plan: _Plan, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
    """What is given, by place or by name, and the defaults of the rest."""
    assign = self.__dict__.__setitem__
    given, used, count = 0, 0, len(args)
    for name, init, by_name, default, factory in plan.slots:
        if init and name in kwargs:
            used += 1
            assign(name, kwargs[name])
        elif init and not by_name and given < count:
            assign(name, args[given])
            given += 1
        elif default is not MISSING:
            assign(name, default)
        elif factory is not MISSING:
            assign(name, factory())
        else:
            raise TypeError(f"{type(self).__name__}() lacks the argument '{name}'")
    if used < len(kwargs) or given < count:
        _refuse_surplus(self, args[given:], kwargs)


def _refuse_surplus(self: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
    known = [one.name for one in fields(self) if one.init]
    surplus = [*(name for name in kwargs if name not in known), *map(repr, args)]
    hint = likeness(surplus[0], known)
    raise TypeError(f"{type(self).__name__}() got surplus arguments: {', '.join(surplus)}{hint}")


def __repr__(self: Any) -> str:
    shown = ", ".join(f"{one.name}={getattr(self, one.name)!r}" for one in fields(self) if one.repr)
    return f"{type(self).__qualname__}({shown})"


def __eq__(self: Any, other: object) -> bool:
    if other.__class__ is not self.__class__:
        return NotImplemented
    key = (_PLANS.get(self.__class__) or _planned(self.__class__)).key
    return bool(self is other or key(self) == key(other))


def __hash__(self: Any) -> int:
    return hash((_PLANS.get(self.__class__) or _planned(self.__class__)).key(self))


def __setattr__(self: Any, name: str, value: Any) -> None:
    raise FrozenInstanceError(f"cannot assign to field {name!r}")


def __delattr__(self: Any, name: str) -> None:
    raise FrozenInstanceError(f"cannot delete field {name!r}")
