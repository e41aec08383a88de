"""Records behave as frozen dataclasses do."""

from __future__ import annotations

import inspect
import os
import threading
from collections.abc import Callable
from dataclasses import FrozenInstanceError, dataclass, field, fields, replace
from functools import partial
from typing import ClassVar

import pytest

from circle_train.record import _LOCK, mutable, record


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


@mutable
class Counter:
    name: str
    count: int = 0
    seen: list[str] = field(default_factory=list, repr=False)

    def __post_init__(self) -> None:
        self.seen.append(self.name)


@mutable
class Named(Counter):
    by: str = ""


def test_mutable_ones_are_dataclasses_from_their_first_object_on() -> None:
    counter, other = Named("a", by="b"), Counter("a")
    counter.count += 1
    assert (counter.name, counter.count, counter.seen, counter.by) == ("a", 1, ["a"], "b")
    assert repr(counter) == "Named(name='a', count=1, by='b')"
    assert [one.name for one in fields(Named)] == ["name", "count", "seen", "by"]
    assert replace(other, count=3).count == 3
    assert other != Counter("a")
    assert other.seen is not Counter("b").seen
    assert list(inspect.signature(Counter).parameters) == ["name", "count", "seen"]
    with pytest.raises(TypeError, match="missing 1 required"):
        Counter()


def test_fields_are_read_once_whoever_asks_first() -> None:
    """Threads that make the first objects of a class, of one that derives from it and ask for its fields, all at once."""
    failed: list[BaseException] = []
    for _ in range(50):
        base = mutable(
            type("Base", (), {"__annotations__": {"a": int, "b": list}, "b": field(default_factory=list)})
        )
        derived = mutable(type("Derived", (base,), {"__annotations__": {"c": int}, "c": 7}))
        asked = [partial(base, 1), partial(derived, 1), partial(fields, base), partial(fields, derived)] * 2
        gate = threading.Barrier(len(asked))

        def ask(what: Callable[[], object], gate: threading.Barrier = gate) -> None:
            gate.wait()
            try:
                what()
            except BaseException as error:
                failed.append(error)

        threads = [threading.Thread(target=ask, args=(what,)) for what in asked]
        for one in threads:
            one.start()
        for one in threads:
            one.join()
    assert not failed


def test_ctrl_c_while_fields_are_read_loses_none(monkeypatch: pytest.MonkeyPatch) -> None:
    made = record(
        type("Made", (Base,), {"__annotations__": {"notes": list}, "notes": field(default_factory=list)})
    )

    def interrupted(**_: object) -> Callable[[type], None]:
        def read(cls: type) -> None:
            del cls.notes  # as dataclass does before it is done
            raise KeyboardInterrupt

        return read

    with monkeypatch.context() as patch:
        patch.setattr("circle_train.record.dataclass", interrupted)
        with pytest.raises(KeyboardInterrupt):
            made(1)
    assert made(1).notes == []
    with pytest.raises(FrozenInstanceError):
        made(1).size = 2


def test_a_fork_while_fields_are_read_waits_for_them() -> None:
    """In the child nobody else would ever be done."""
    made = mutable(type("Made", (), {"__annotations__": {"a": int}}))
    with _LOCK:
        child = threading.Thread(target=lambda: pids.append(os.fork() or os._exit(made(1).a - 1)))
        pids: list[int] = []
        child.start()
        child.join(0.2)
        assert child.is_alive()
    child.join()
    assert os.waitpid(pids[0], 0)[1] == 0
