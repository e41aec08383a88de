"""What an engine does: make a callable of one node over fixed arrays."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

import numpy as np

from circle_train.ir import Graph, Node, Tensor
from circle_train.ir.blame import Blame
from circle_train.ir.coded import Coded
from circle_train.ir.tensor_type import Array

Step = Callable[[], None]


class Backend(Protocol):
    """An engine."""

    @property
    def name(self) -> str: ...

    @property
    def threads(self) -> int:
        """How many cores it uses."""

    @property
    def numpy_threads(self) -> int | None:
        """How many cores numpy's products may use in a step; None: as many as numpy takes."""

    @property
    def nbytes(self) -> int:
        """Memory that it needs besides the arena and the state."""

    @property
    def has_bfloat16_products(self) -> bool:
        """Whether it multiplies bfloat16s by an instruction of the processor."""

    def side_by_side(self, count: int) -> Sequence[Backend]:
        """So many engines of one thread each, to run at the same time; one alone is the engine itself."""

    def bind(
        self, node: Node, inputs: Sequence[Array | Coded | None], outputs: Sequence[Array]
    ) -> Step | None:
        """A step that reads and writes exactly these arrays, or None: the reference runs this node, on floats alone."""

    def recognise(self, graph: Graph, keep: Sequence[Tensor]) -> None:
        """Before differentiation: make one op of what the file spells out in many."""

    def fuse(self, graph: Graph, keep: Sequence[Tensor]) -> None:
        """Rewrite a program's graph so that this engine runs it well; the kept tensors stay."""

    def join_narrow(self, graph: Graph, keep: Sequence[Tensor]) -> None:
        """Once more, where tensors have come to lie as bfloat16 or bytes: nodes may read and write those themselves."""

    def link(self, steps: Sequence[Step]) -> list[Step]:
        """The steps of a whole program, joined where that saves time."""

    def is_steady(self, node: Node, batch: int, largest: int) -> bool:
        """Whether a sample's results have the same bits in every batch up to the largest; `batch` is the node's own."""


class Reference:
    """The numpy in the op classes, which is the specification."""

    name = "reference"
    threads = 1
    nbytes = 0
    has_bfloat16_products = False

    def __init__(self, numpy_threads: int | None = None) -> None:
        self.numpy_threads = numpy_threads

    def side_by_side(self, count: int) -> Sequence[Backend]:
        return [self] * count

    def bind(self, node: Node, inputs: Sequence[Array | Coded | None], outputs: Sequence[Array]) -> Step:
        op = node.op
        fixed_inputs, fixed_outputs = list(inputs), list(outputs)

        def step() -> None:
            with Blame(node), np.errstate(all="ignore"):
                for result, output in zip(op.compute(fixed_inputs), fixed_outputs, strict=True):
                    np.copyto(output, result)

        return step

    def recognise(self, graph: Graph, keep: Sequence[Tensor]) -> None:
        """Nothing: the file's operators are what is specified."""

    def fuse(self, graph: Graph, keep: Sequence[Tensor]) -> None:
        """Node by node: the specification stays as it is."""

    def join_narrow(self, graph: Graph, keep: Sequence[Tensor]) -> None:
        """Node by node here too."""

    def link(self, steps: Sequence[Step]) -> list[Step]:
        return list(steps)

    def is_steady(self, node: Node, batch: int, largest: int) -> bool:
        """What sums numpy and its BLAS order by the sizes of arrays."""
        return False
