"""Records behave as frozen dataclasses do."""

from __future__ import annotations

import inspect
from dataclasses import FrozenInstanceError, dataclass, field, fields, replace
from typing import ClassVar

import pytest

from circle_train.record import record


@record
class Base:
    size: int
    kind: ClassVar[str] = "base"
    scale: float = 1.0


@record
class Derived(Base):
    names: tuple[str, ...] = ()
    notes: list[str] = field(default_factory=list, compare=False, repr=False)
    only: int = field(default=7, kw_only=True)

    def __post_init__(self) -> None:
        if self.size < 0:
            raise ValueError("size")


def test_construction_defaults_and_order() -> None:
    made = Derived(3, 2.0, ("a",))
    assert (made.size, made.scale, made.names, made.notes, made.only) == (3, 2.0, ("a",), [], 7)
    assert [one.name for one in fields(made)] == ["size", "scale", "names", "notes", "only"]
    assert Derived(3).notes is not Derived(3).notes
    assert replace(made, scale=5.0) == Derived(3, 5.0, ("a",))
    assert repr(made) == "Derived(size=3, scale=2.0, names=('a',), only=7)"


def test_equality_is_by_class_and_compared_fields() -> None:
    assert Derived(1, notes=["x"]) == Derived(1)
    assert hash(Derived(1, notes=["x"])) == hash(Derived(1))
    assert Derived(1) != Derived(2)
    assert Base(1) != Derived(1)


@pytest.mark.parametrize(
    ("args", "kwargs"), [((), {}), ((1, 2.0, (), [], 7), {}), ((1,), {"other": 3}), ((-1,), {})]
)
def test_what_a_dataclass_refuses_is_refused(args: tuple, kwargs: dict) -> None:
    with pytest.raises((TypeError, ValueError)):
        Derived(*args, **kwargs)


def test_records_are_frozen() -> None:
    made = Derived(1)
    with pytest.raises(FrozenInstanceError):
        made.size = 2
    with pytest.raises(FrozenInstanceError):
        del made.size


def test_a_frozen_dataclass_may_extend_a_record() -> None:
    @dataclass(frozen=True)
    class Mixed(Derived):
        extra: str = "e"

    assert Mixed(1, extra="f") == Mixed(1, extra="f")
    assert Mixed(1).only == 7
    with pytest.raises(FrozenInstanceError):
        Mixed(1).extra = "g"


def test_signatures_are_the_fields() -> None:
    found = inspect.signature(Derived)
    assert list(found.parameters) == ["size", "scale", "names", "notes", "only"]
    assert found.parameters["size"].default is inspect.Parameter.empty
    assert (found.parameters["scale"].default, found.parameters["notes"].default) == (1.0, [])
    assert found.parameters["only"].kind is inspect.Parameter.KEYWORD_ONLY
    found.bind(1, only=3)
    with pytest.raises(TypeError):
        found.bind()


def test_a_class_with_an_init_of_its_own_shows_that() -> None:
    class Own(Derived):
        def __init__(self, word: str) -> None:
            super().__init__(len(word))

    assert list(inspect.signature(Own).parameters) == ["word"]
    assert not hasattr(Derived(1), "__signature__")
