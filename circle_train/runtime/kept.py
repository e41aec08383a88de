"""What a frozen beginning makes of each sample of a data set: computed once, then fed.

Every epoch but the first then begins where training does. The bits are those of computing it again: a sample's results
depend on nothing but the sample and frozen weights (see prefix.Keep), and both are looked at before each use.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from zlib import crc32

import numpy as np

from circle_train.compile.prefix import Keep
from circle_train.compile.program import Prefix, Program
from circle_train.data.coercion import coerce
from circle_train.data.dataset import Batch, Dataset
from circle_train.ir import Tensor
from circle_train.ir.tensor_type import Array
from circle_train.record import record
from circle_train.runtime.executor import Executor
from circle_train.runtime.rows import rows
from circle_train.runtime.state import State

KEPT_BYTES = 512_000_000
"""What results may take unless somebody says otherwise."""
LOOKED_AT = 64
"""Numbers of a sample that are compared."""


class Store:
    """Results by sample; `known` says of which."""

    def __init__(self, keep: Keep, results: Sequence[Tensor], batch: int, data: Dataset) -> None:
        samples = len(data)
        self.keep = keep
        self.rows = [rows((samples, t.type.size // batch), np.dtype(t.dtype.numpy)) for t in results]
        self.known = np.zeros(samples, bool)
        self.looks = [Look(a) for a in data.inputs if isinstance(a, np.ndarray) and a.flags.writeable]
        self.weights = -1, 0
        """The state's generation and a sum over the frozen weights that may be set in place."""

    @property
    def arrays(self) -> list[Array]:
        return [some.array for some in self.rows]

    @property
    def nbytes(self) -> int:
        return sum(array.nbytes for array in self.arrays)

    def renew(self, data: Dataset) -> bool:
        """Whether the same samples may have come in other arrays; their looks are compared at each use."""
        arrays = [a for a in data.inputs if isinstance(a, np.ndarray)]  # one without a look may have changed
        if len(data) != len(self.known) or len(arrays) != len(self.looks):
            return False
        return all(look.follows(array) for look, array in zip(self.looks, arrays, strict=True))

    def forget_inputs(self) -> None:
        """Keep no array alive but the results."""
        for look in self.looks:
            look.array = np.empty((0, *look.array.shape[1:]), look.array.dtype)

    def doubt(self, places: Array, weights: tuple[int, int]) -> None:
        """Forget what was made by other weights, or of samples that look different by now."""
        if weights != self.weights:
            self.known[:] = False
        self.weights = weights
        for look in self.looks:
            self.known[places[look.differs(places)]] = False


class Look:
    """A few numbers of every sample, to be compared with those that it had."""

    def __init__(self, array: Array) -> None:
        self.array = array
        numbers = np.linspace(0, array[0].size - 1, min(LOOKED_AT, array[0].size)).astype(int)
        self.where = np.unravel_index(numbers, array.shape[1:])
        self.seen = np.zeros((len(array), len(numbers)), array.dtype)

    def follows(self, array: Array) -> bool:
        """Look at this array from here on, if it is one of such samples."""
        alike = array.dtype == self.array.dtype and array.shape[1:] == self.array.shape[1:]
        if alike:
            self.array = array
        return alike

    def differs(self, places: Array) -> Array:
        """Which of these samples; they are remembered as they are."""
        index = (places[:, None], *self.where)
        now = self.array[index]
        different: Array = (now != self.seen[places]).any(1)
        self.seen[places] = now
        return different


@record
class KeptDataset(Dataset):
    """Arrays whose batches are places in them, so that a step may take what is kept of these samples."""

    store: Store

    @property
    def is_decoded(self) -> bool:
        """Not before somebody asks for what is not kept."""
        return False

    def take(self, indices: slice | Array) -> Batch:
        places = np.arange(len(self))[indices]
        return Samples(self, places), [array[indices] for array in self.targets]


@record
class KeptPart(Dataset):
    """Some samples of such a data set: what is kept of them is kept for all that look at them."""

    whole: KeptDataset
    places: Array

    @property
    def is_decoded(self) -> bool:
        return False

    def take(self, indices: slice | Array) -> Batch:
        return Samples(self.whole, self.places[indices]), [array[indices] for array in self.targets]


@record
class Samples:
    """Some samples of a data set."""

    data: KeptDataset
    places: Array

    def __len__(self) -> int:
        return len(self.places)

    @property
    def keep(self) -> Keep:
        return self.data.store.keep

    def feeds(self, runner: Executor) -> dict[Tensor, Array]:
        """The results of the frozen beginning, computed where they are not known, and inputs that others read too."""
        program, store, places = runner.program, self.data.store, self.places
        assert program.prefix is not None
        feeds: dict[Tensor, Array] = {}
        if any(tensor in program.graph.inputs for tensor in program.inputs):
            feeds.update(self._inputs(program))
        store.doubt(places, weights_of(program.prefix, runner.state))
        if not store.known[places].all():
            runner.run_beginning(feeds or self._inputs(program))
            for array, tensor in zip(store.arrays, program.prefix.results, strict=True):
                array[places] = runner[tensor].reshape(len(places), -1)
            store.known[places] = True
        for some, tensor in zip(store.rows, program.prefix.results, strict=True):
            feeds[tensor] = some.array[places].reshape(tensor.shape)
            some.let_go()
        return feeds

    def _inputs(self, program: Program) -> dict[Tensor, Array]:
        arrays: list[Any] = [array[self.places] for array in self.data.inputs]
        return dict(zip(program.inputs, coerce(arrays, program.inputs, "x"), strict=True))


def weights_of(prefix: Prefix, state: State) -> tuple[int, int]:
    """What tells whether frozen weights have been set: most are views of a file, which only `replace` can change."""
    known = {t.state: t for t in prefix.program.graph.all_tensors() if t.state is not None}
    arrays = {key: state.array(tensor) for key, tensor in known.items() if key not in state.coded}
    settable = [array for array in arrays.values() if array.flags.writeable]
    sums: list[int] = [crc32(np.ascontiguousarray(array).data) for array in settable]
    return state.generation, hash(tuple(sums))
