"""What a streaming model remembers from one run to the next."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from circle_train.ir import Graph
from circle_train.ir.tensor_type import Array
from circle_train.passes.control.variables import lower_variables


class Memory:
    """The variables of a loaded graph, which become further inputs and outputs of it."""

    def __init__(self, graph: Graph) -> None:
        lower_variables(graph)
        kept = [(v.first, v.last) for v in graph.variables if v.first is not None and v.last is not None]
        kept = [(first, last) for first, last in kept if first is not last]
        self.first = [first.data for first, _ in kept]
        for first, last in kept:
            first.buffer = None
            graph.inputs.append(first)
            graph.outputs.append(last)
        self.now = list(self.first)

    def __len__(self) -> int:
        return len(self.first)

    def reset(self) -> None:
        """Begin anew, with the values that the file gives."""
        self.now = list(self.first)

    def recall(self, shapes: Sequence[tuple[int, ...]], made_for: int) -> list[Array]:
        """The values, one for each sample where the file was made for one and is given more."""
        batch = next((shape[0] for shape in shapes if shape), made_for)
        if made_for != 1 or batch == made_for:
            return list(self.now)
        return [
            np.repeat(value, batch, axis=0) if value.ndim and value.shape[0] == 1 else value
            for value in self.now
        ]

    def keep(self, values: Sequence[Array]) -> None:
        self.now = list(values)
