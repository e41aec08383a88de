"""What lives from step to step: weights, optimizer slots, accumulated gradients, the step count and the learning rate."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from circle_train.ir import StateKey, Tensor
from circle_train.ir.tensor_type import Array
from circle_train.train.parameters import Parameter


class State:
    """Arrays by StateKey; programs of one session share them.

    A trained weight is a float32 array of its own, a frozen one stays a view of the loaded file until it is set.
    """

    def __init__(self, parameters: Sequence[Parameter], learning_rate: float) -> None:
        self.parameters = {parameter.name: parameter for parameter in parameters}
        self.arrays: dict[StateKey, Array] = {}
        self.step = 0
        self.epoch = 0
        """Of the fit under way; with `position`, the batches of it that are done, it says where a resumed fit goes on."""
        self.position = 0
        self.epochs_begun = 0
        """Over all fits; the shuffled order of an epoch is a function of it and of the session's seed."""
        self.generation = 0
        """Grows when an array is replaced, so that whoever holds its address notices."""
        self.learning_rate = learning_rate
        for name, parameter in self.parameters.items():
            data = parameter.tensor.data
            self.arrays[StateKey("value", name)] = data.copy() if parameter.trained else data

    def array(self, tensor: Tensor) -> Array:
        """The memory of a state tensor; slots and accumulators are zero at first."""
        assert tensor.state is not None
        if tensor.state not in self.arrays:
            self.arrays[tensor.state] = np.zeros(tensor.shape, tensor.dtype.numpy)
        return self.arrays[tensor.state]

    def value(self, name: str) -> Array:
        return self.arrays[StateKey("value", name)]

    def replace(self, key: StateKey, array: Array) -> None:
        """Give a state other memory; what is bound to the old must be bound anew (see `generation`)."""
        self.arrays[key] = array
        self.generation += 1
