"""A fit under way: who hears of it, what they remember, and how a checkpoint holds that.

Whoever is in the middle of being told of an epoch's or batch's end may save a checkpoint. It says who has been told
by then, so that a resumed fit tells the others first and goes on as if nothing had happened.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from contextlib import AbstractContextManager
from typing import Any

import numpy as np

from circle_train.errors import ConfigError
from circle_train.fitting.average import Average
from circle_train.fitting.callback import Callback, Logs, Trainee
from circle_train.fitting.story import believing, refused_story
from circle_train.ir.tensor_type import Array
from circle_train.record import record

EVENTS = ("on_batch_end", "on_epoch_end")


class Course:
    """Tells callbacks what happens; they are known as "EarlyStopping/0", the first of its kind."""

    def __init__(self, session: Trainee, listeners: Iterable[Callback]) -> None:
        self.session = session
        self.listeners: dict[str, Callback] = {}
        for listener in listeners:
            kind = type(listener).__name__
            count = sum(type(other).__name__ == kind for other in self.listeners.values())
            self.listeners[f"{kind}/{count}"] = listener
        self.average: Average | None = None
        """Of the epoch under way."""
        self._telling: dict[str, Any] | None = None
        self._attentive: dict[str, Callback] = {}
        self._is_resumed = False

    def begin(self, epochs: int, steps: int | None) -> None:
        for listener in self.listeners.values():
            listener.begin(self.session, epochs, steps)
        self._attentive = {key: one for key, one in self.listeners.items() if one.hears_batches}

    def begin_epoch(self, epoch: int) -> None:
        for listener in self.listeners.values():
            listener.on_epoch_begin(epoch)

    def end_batch(self, batch: int) -> None:
        if self._attentive:
            assert self.average is not None
            self._tell(self._attentive, "on_batch_end", batch, {"loss": self.average.loss}, [])

    def end_epoch(self, epoch: int, logs: Logs) -> None:
        self.average = None
        self._tell(self.listeners, "on_epoch_end", epoch, logs, [])

    def end(self) -> None:
        for listener in self.listeners.values():
            with self._believing(listener):
                listener.on_train_end()

    def _tell(
        self, listeners: Mapping[str, Callback], event: str, number: int, logs: Logs, told: list[str]
    ) -> None:
        self._telling = {"event": event, "number": number, "logs": dict(logs), "told": told}
        for key, listener in listeners.items():
            if key not in told:
                told.append(key)
                try:
                    with self._believing(listener):
                        getattr(listener, event)(number, logs)
                except KeyboardInterrupt:  # a checkpoint written now lets it be told again
                    told.remove(key)
                    raise
        self._telling = None

    def snapshot(self) -> dict[str, Any]:
        """All of it as plain data and arrays."""
        remembered = {
            key: {name: getattr(listener, name) for name in listener.remembers if hasattr(listener, name)}
            for key, listener in self.listeners.items()
            if listener.remembers
        }
        return {
            "callbacks": remembered,
            "telling": self._telling,
            "average": None if self.average is None else self.average.snapshot(),
            "stopping": self.session.stop_training,
        }

    def resume(self, snapshot: Mapping[str, Any], average: Average) -> None:
        """Give everybody what they remembered, and tell those that have not been told."""
        self._is_resumed, telling = True, snapshot["telling"]
        with refused_story():
            if snapshot["average"] is not None:
                average.restore(snapshot["average"])
                self.average = average
            for key, remembered in snapshot["callbacks"].items():
                if key in self.listeners:
                    self.listeners[key].restore(remembered)
            self.session.stop_training = snapshot["stopping"] is True
            if telling is not None:
                heard = self._attentive if telling["event"] == "on_batch_end" else self.listeners
                number, logs, told = int(telling["number"]), dict(telling["logs"]), list(telling["told"])
        if telling is not None:
            self._tell(heard, telling["event"], number, logs, told)

    def _believing(self, listener: Callback) -> AbstractContextManager[None]:
        return believing(listener, self._is_resumed and bool(listener.remembers))


@record
class BrokenOff:
    """A fit that a checkpoint tells of."""

    data: Mapping[str, Any]

    def snapshot(self) -> Mapping[str, Any]:
        return self.data


def pack(snapshot: Mapping[str, Any]) -> tuple[str, dict[str, Array]]:
    """A snapshot as JSON, and the arrays in it by "EarlyStopping/0.weights"."""
    arrays: dict[str, Array] = {}
    plain: dict[str, dict[str, Any]] = {}
    for key, remembered in snapshot["callbacks"].items():
        plain[key] = {}
        for name, value in remembered.items():
            if isinstance(value, np.ndarray):
                arrays[f"{key}.{name}"] = value
            else:
                plain[key][name] = value
    try:
        return json.dumps({**snapshot, "callbacks": plain}, default=_number), arrays
    except TypeError as error:
        raise ConfigError(
            f"a callback remembers what no checkpoint can hold ({error}); let `remembers` name numbers, texts, lists and "
            "dicts of them, and arrays"
        ) from None


def unpack(text: str, arrays: Mapping[str, Array]) -> dict[str, Any]:
    """The snapshot again; ValueError where it is none."""
    snapshot = json.loads(text)
    if not isinstance(snapshot, dict) or snapshot.keys() < {"callbacks", "telling", "average", "stopping"}:
        raise ValueError("parts of it are missing")
    telling = snapshot["telling"]
    if telling is not None and telling["event"] not in EVENTS:
        raise ValueError(f"its event is {telling['event']!r}")
    for name, array in arrays.items():
        key, _, attribute = name.rpartition(".")
        snapshot["callbacks"][key][attribute] = np.array(array)
    return snapshot


def _number(value: Any) -> Any:
    if isinstance(value, np.generic):
        return value.item()
    raise TypeError(f"{type(value).__name__} {value!r:.40}")
