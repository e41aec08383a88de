"""What lives from step to step: weights, optimizer slots, accumulated gradients, the step count and the learning rate."""

from __future__ import annotations

import mmap
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from circle_train import fitting
from circle_train.errors import ConfigError
from circle_train.ir import Role, StateKey, Tensor
from circle_train.ir.coded import Coded
from circle_train.ir.mapped import mapped
from circle_train.ir.tensor_type import Array
from circle_train.ops.internal.update import corner
from circle_train.optimizers.optimizer import Optimizer
from circle_train.passes.dropout import RANDOM
from circle_train.passes.integers.as_shipped import Rounding
from circle_train.runtime.pages import aligned, zeros
from circle_train.settings.parameters import Parameter


class State:
    """Arrays by StateKey; programs of one session share them.

    A trained weight (and a statistic that moves) is an array of its own, a frozen one stays a view of the
    loaded file until it is set.
    """

    def __init__(self, parameters: Sequence[Parameter], learning_rate: float) -> None:
        self.parameters = {parameter.name: parameter for parameter in parameters}
        self.arrays: dict[StateKey, Array] = {}
        self.coded: dict[StateKey, Coded] = {}
        """Frozen weights that lie as the file's integers, until they are set."""
        self.step = 0
        self.epoch = 0
        """Of the fit under way; with `position`, the batches of it that are done, it says where a resumed fit goes on."""
        self.position = 0
        self.epochs_begun = 0
        """Over all fits; the shuffled order of an epoch is a function of it and of the session's seed."""
        self.runs_far = False
        """Whether the last loss was so large that gradients may overflow (runtime/guard.py)."""
        self.passes = 0
        """Training passes so far; with the session's seed it says what dropout drops."""
        self.properties: dict[str, int | float | str] = {}
        """What the session's user wants to go with the checkpoint."""
        self.course: fitting.course.Course | fitting.course.BrokenOff | None = None
        """The fit under way, or broken off."""
        self.rounding: Rounding | None = None
        """The scales that ship, once training rounds to them."""
        self.generation = 0
        """Grows when an array is replaced, so that whoever holds its address notices."""
        self.unread: Callable[[], Any] | None = None
        """Gives the result whose outputs still lie where the next run writes; or None, if it was forgotten."""
        self.learning_rate = learning_rate
        self.unset = {name for name, p in self.parameters.items() if Role.NOMINAL in p.root.role}
        """Parameters of a package without weights that nobody has given a value yet."""
        changing = [p for p in parameters if p.trained or p.moves]
        own = zip(changing, zeros([p.tensor.type for p in changing]), strict=True)
        memory = {parameter.name: array for parameter, array in own}
        for name, parameter in self.parameters.items():
            if name in memory:
                np.copyto(memory[name], parameter.tensor.data)
                self.arrays[StateKey("value", name)] = memory[name]
            else:
                self.restore(name)
        for mapping in {mapped(p.tensor.buffer.behind) for p in changing if p.tensor.buffer is not None}:
            if mapping is not None:
                mapping.madvise(mmap.MADV_DONTNEED)

    def begin_anew(self, learning_rate: float) -> None:
        """As it was when it was made: the file's values, slots of zeros, no step taken; in the same memory."""
        for key, array in self.arrays.items():
            if key.kind != "value":
                array.fill(0)
            elif array.flags.writeable:
                np.copyto(array, self.parameters[key.owner].tensor.data)
        self.step = self.epoch = self.position = self.epochs_begun = self.passes = 0
        self.course, self.rounding, self.learning_rate, self.runs_far = None, None, learning_rate, False

    def provide(self, tensors: Iterable[Tensor]) -> None:
        """Memory for all state tensors among these; slots and accumulators are zero at first."""
        found = ((t.state, t.type) for t in tensors if t.state is not None)
        new = {key: type_ for key, type_ in found if key not in self.arrays and key not in self.coded}
        if new:
            self.arrays.update(zip(new, zeros(list(new.values())), strict=True))

    def array(self, tensor: Tensor) -> Array:
        """The memory of a state tensor."""
        assert tensor.state is not None
        if tensor.state not in self.arrays:
            self.provide([tensor])
        found = self.get(tensor.state)
        assert found is not None
        return found

    def get(self, key: StateKey) -> Array | None:
        """What is known by this key, floats in any case."""
        return self.coded[key].real if key in self.coded else self.arrays.get(key)

    def settle(self) -> None:
        """Before memory is written anew: outputs that somebody holds and has not read yet are copied."""
        if self.unread is None:
            return
        if (result := self.unread()) is not None:
            result.outputs  # noqa: B018 -- whoever asks for them has them copied
        self.unread = None

    def require_values(self) -> None:
        """Refuse to compute with parameters that have no value yet."""
        if self.unset:
            some = ", ".join(f"'{name}'" for name in sorted(self.unset)[:3])
            raise ConfigError(
                f"the package holds no weights, and {len(self.unset)} of {len(self.parameters)} parameters have "
                f"no value ({some}, …); set them with parameters.set_flat(vector, trainable_only=False) or "
                "load_checkpoint first"
            )

    def count(self, updates: bool, differentiates: bool) -> None:
        """Note a run that has come to its end."""
        self.step += updates
        self.passes += differentiates

    def set_random(self, seed: int) -> None:
        """Write what decides the masks of the next training pass."""
        random = self.arrays.get(RANDOM)
        if random is not None:
            random[:] = (seed, self.passes, 0)

    def set_part(self, part: int) -> None:
        """Write which part of its batch the training pass has come to."""
        random = self.arrays.get(RANDOM)
        if random is not None:
            random[2] = part

    def set_scalars(self, rule: Optimizer) -> None:
        """Write the numbers that the next update needs."""
        units = {
            name: p.tensor.weight.unit
            for name, p in self.parameters.items()
            if p.tensor.weight.unit is not None
        }
        for key, numbers in rule.numbers(self.learning_rate, self.step, units).items():
            if key in self.arrays:
                self.arrays[key][:] = numbers

    def shape(self, key: StateKey) -> tuple[int, ...]:
        """Of a parameter's values, and of its slots and sums, which are of what training moves."""
        parameter = self.parameters[key.owner]
        return self.value(key.owner).shape if key.kind == "value" else parameter.learned.shape

    def spread(self, key: StateKey) -> Array:
        """A slot or sum as large as its parameter, zeros where nothing was noted."""
        array, value = self.arrays.get(key), self.value(key.owner)
        if array is not None and array.shape == value.shape:
            return array
        whole = np.zeros_like(value)
        if array is not None:
            whole[corner(array)] = array
        return whole

    def value(self, name: str) -> Array:
        found = self.get(StateKey("value", name))
        assert found is not None
        return found

    def is_own(self, name: str) -> bool:
        """Whether a parameter's values may be others than the file's."""
        array = self.arrays.get(StateKey("value", name))
        return array is not None and bool(array.flags.writeable)

    def restore(self, name: str) -> None:
        """Give a parameter that does not change the values that the file holds."""
        tensor, key = self.parameters[name].tensor, StateKey("value", name)
        if isinstance(tensor.buffer, Coded):
            self.arrays.pop(key, None)
            self.coded[key] = tensor.buffer
            self.generation += 1
            return
        held = aligned(tensor.data).view()
        held.flags.writeable = False
        self.replace(key, held)

    def replace(self, key: StateKey, array: Array) -> None:
        """Give a state other memory; what is bound to the old must be bound anew (see `generation`)."""
        self.arrays[key] = array
        self.coded.pop(key, None)
        self.generation += 1
