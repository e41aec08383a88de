"""What is made of weights for kernels: of those that never change the order in which products read them, once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from weakref import WeakValueDictionary

import numpy as np

from circle_train.backends.native.engine import abi
from circle_train.backends.native.engine.abi import Kernel
from circle_train.backends.native.engine.binding import pointer
from circle_train.backends.native.engine.library import Workers
from circle_train.backends.native.engine.step import Call
from circle_train.ir import Node
from circle_train.ir.tensor_type import Array

MAKERS = {Kernel.CONV: (Kernel.CONV_PANELS, "w"), Kernel.MATMUL: (Kernel.MATMUL_PANELS, "b")}
"""Of a product: the kernel that makes its panels, as its working memory, and which argument they stand for."""


class Panels:
    """Those of one engine; programs for several shapes share them, and the last that reads them lets them go."""

    def __init__(self, workers: Workers) -> None:
        self.workers = workers
        self._made: WeakValueDictionary[tuple[Any, ...], Array] = WeakValueDictionary()

    def give(self, node: Node, inputs: Sequence[Any], calls: Sequence[Call]) -> None:
        """Let the calls read panels of what is constant, where that spares them anything."""
        constants = {
            pointer(array): tensor.shape
            for tensor, array in zip(node.inputs, inputs, strict=True)
            if tensor is not None and tensor.is_constant and isinstance(array, np.ndarray)
        }
        for call in calls:
            maker, weights = MAKERS.get(call.kernel, (None, ""))
            address = getattr(call.args, weights, None)
            if maker is not None and address in constants:
                lies = constants[address], getattr(call.args, "b_row", 0), getattr(call.args, "alpha", 1.0)
                self._give(call, maker, (address, *lies))

    def _give(self, call: Call, maker: Kernel, weights: tuple[Any, ...]) -> None:
        nbytes = self.workers.scratch_bytes(maker, call.args)
        if not nbytes:
            return
        key = (maker, nbytes, *weights)  # pictures of another size may be convolved in another way
        panels = self._made.get(key)
        if panels is None:
            memory = np.empty(nbytes + abi.ALIGNMENT, np.uint8)
            panels = self._made[key] = memory[-memory.ctypes.data % abi.ALIGNMENT :][:nbytes]
            self.workers.run(maker, call.args, panels)
        call.args.panels = pointer(panels)
        call.keep += (panels,)


def packed_bytes(calls: Sequence[Call], given: Sequence[Any]) -> int:
    """What calls keep of their own, besides views and the arrays that the node was bound to."""
    parts = [part for call in calls for part in call.keep]
    kept = {
        id(a): a for part in parts for a in (part if isinstance(part, tuple) else (part,)) if is_own(a, given)
    }
    return sum(a.nbytes for a in kept.values())


def is_own(kept: Any, given: Sequence[Any]) -> bool:
    return isinstance(kept, np.ndarray) and kept.base is None and not any(kept is a for a in given)
