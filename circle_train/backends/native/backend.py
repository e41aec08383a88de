"""The native engine: C++ kernels behind a flat C ABI, compiled when the package is installed."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

from circle_train.backends.base import Step
from circle_train.backends.native import joining
from circle_train.backends.native.engine.abi import DOT_ROWS, Tier
from circle_train.backends.native.engine.binding import OPS, bind
from circle_train.backends.native.engine.library import Workers, load
from circle_train.backends.native.engine.panels import Panels, packed_bytes
from circle_train.backends.native.engine.step import NativeRun, NativeStep, Scratch
from circle_train.brought import bring_all
from circle_train.ir import Graph, Node, Tensor
from circle_train.ir.coded import Coded
from circle_train.ir.tensor_type import Array
from circle_train.ops.layers.linear import BatchMatMul, FullyConnected

__all__ = ["Native", "is_available"]
bring_all("circle_train.backends.native.binders")  # each registers which kernel computes what
RESIDENT, IMAGES, LANE = 1_150_000, 400_000, 260_000
"""Bytes that the library's code and its threads take, the code of convolutions where there are any, and one more engine of a
single thread; as measured by tools/dev/memory.py on small models."""


def is_available() -> bool:
    """Whether the kernels were compiled and load on this machine."""
    return load() is not None


class Native:
    """Runs what its kernels cover; a program's consecutive native nodes are one call."""

    name = "native"
    numpy_threads = 1
    """Its pool would wait for work where this engine's works; and what it adds up depends on their number."""

    def __init__(
        self, threads: int | None = None, tier: Tier = Tier.AUTO, weights_stay: bool = False
    ) -> None:
        workers = Workers(threads, tier)
        self.threads, self.tier = workers.threads, tier
        self.scratch = Scratch(workers)
        self.has_bfloat16_products = workers.has_bfloat16_products
        self._resident, self._images = RESIDENT, IMAGES
        self._convolves = False
        self._panels = Panels(workers) if weights_stay else None
        """Weights that nothing trains, brought into the order of products once."""

    @property
    def nbytes(self) -> int:
        """Code, tables and working memory of the kernels."""
        return self.scratch.nbytes + self._resident + self._images * self._convolves

    def side_by_side(self, count: int) -> Sequence[Native]:
        """Engines of one thread each; one alone is this engine."""
        if count == 1:
            return [self]
        engines = [Native(1, self.tier) for _ in range(count)]
        for engine in engines:
            engine._resident, engine._images = LANE, 0
        return engines

    def bind(
        self, node: Node, inputs: Sequence[Array | Coded | None], outputs: Sequence[Array]
    ) -> Step | None:
        calls: Any = bind(node, inputs, outputs)
        if calls is None:
            return None
        if self._panels is not None:
            self._panels.give(node, inputs, calls)
        return NativeStep(node, calls, self.scratch, packed_bytes(calls, (*inputs, *outputs)))

    def recognise(self, graph: Graph, keep: Sequence[Tensor]) -> None:
        """Find the formulas that kernels know as one."""
        joining.recognise(graph, keep)

    def fuse(self, graph: Graph, keep: Sequence[Tensor]) -> None:
        """Join what kernels compute together."""
        joining.fuse(graph, keep)

    def is_steady(self, node: Node, batch: int, largest: int) -> bool:
        """Kernels sum in an order that no other sample decides; only one product of few rows has one of its own.

        What has weights and no kernel is a product of numpy's, whose order is not ours.
        """
        if type(node.op) not in OPS and node.op.parameters and not node.op.formula:
            return False
        if not isinstance(node.op, (FullyConnected, BatchMatMul)):
            return True
        shape, second = node.outputs[0].shape, node.inputs[1]
        if second is not None and len(second.shape) > 2:
            return prod(shape[:-2]) > batch or shape[-2] > DOT_ROWS
        rows = prod(shape[:-1]) // batch
        return rows > DOT_ROWS or rows * largest <= DOT_ROWS

    def join_narrow(self, graph: Graph, keep: Sequence[Tensor]) -> None:
        """Read and write bfloat16 tensors and bytes as they lie."""
        joining.join_narrow(graph, keep)

    def link(self, steps: Sequence[Step]) -> list[Step]:
        """Neighbouring native steps become one call."""
        native = [step for step in steps if isinstance(step, NativeStep)]
        self._convolves |= any("CONV" in call.kernel.name for step in native for call in step.calls)
        linked: list[Step] = []
        group: list[NativeStep] = []
        for step in [*steps, None]:
            if isinstance(step, NativeStep):
                group.append(step)
                continue
            if group:
                linked.append(NativeRun(group, self.scratch))
            group = []
            if step is not None:
                linked.append(step)
        return linked
