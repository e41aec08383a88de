"""Constants whose numbers are made when somebody looks, and go with who looked."""

from __future__ import annotations

from collections.abc import Callable
from weakref import ref

import numpy as np

from circle_train.ir.node import Buffer
from circle_train.ir.tensor_type import Array


class Remade(Buffer):
    """Base: `make` makes the numbers, which nobody keeps here."""

    is_let_go = True

    def __init__(self) -> None:
        super().__init__()
        self._made: Callable[[], Array | None] = lambda: None

    def make(self) -> Array:
        raise NotImplementedError("a subclass says how its numbers are made")

    @property
    def real(self) -> Array:
        """The numbers; the same array as long as anybody holds it."""
        real = self._made()
        if real is None:
            real = self.make()
            self._made = ref(real)
        return real

    @property
    def bytes(self) -> Array:
        return self.real.reshape(-1).view(np.uint8)


def is_let_go(buffer: Buffer | None) -> bool:
    """Whether its numbers go when only an executor knows them."""
    return isinstance(buffer, Remade) and buffer.is_let_go
