"""The parameters of a model by the operator that reads them, from the input to the output."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from circle_train.compile.program import Program
from circle_train.ir import Node
from circle_train.record import record
from circle_train.settings.parameters import Parameter


@record
class Layer:
    """One operator's parameters, and what training them costs."""

    place: int
    """Of the operator in the model."""
    name: str
    weights: tuple[str, ...]
    """Matrices and kernels: their gradients need the operator's input."""
    biases: tuple[str, ...]
    scales: tuple[str, ...]
    """Scales and shifts of operators without weights, as normalisations are."""
    elements: int
    input_bytes: int
    """Of a batch."""
    has_channels: bool = False
    """Whether a share of its weights can be trained, by the channels of the input."""
    share: float = 1.0
    """Of them, that is trained."""

    @property
    def names(self) -> tuple[str, ...]:
        return (*self.weights, *self.biases, *self.scales)

    @property
    def nbytes(self) -> int:
        """Gradient and two slots for each number, and the input that waits for the backward pass."""
        return 12 * self.elements + (self.input_bytes if self.weights else 0)

    def part(self, share: float) -> Layer:
        """The same with a share of its input channels; of weights that have none the biases alone."""
        if not self.weights:
            return self
        if not self.has_channels:
            return replace(self, weights=(), elements=0)
        return replace(
            self,
            weights=tuple(f"{name}[:{share:g}]" for name in self.weights),
            elements=round(share * self.elements),
            input_bytes=round(share * self.input_bytes),
            share=share,
        )


def layers_of(program: Program) -> list[Layer]:
    """Those that "all" trains."""
    found: dict[int, list[tuple[Node, Parameter]]] = {}
    for parameter in program.parameters:
        if parameter.trained and not parameter.is_statistic and (node := reader(parameter)) is not None:
            found.setdefault(node.index, []).append((node, parameter))
    return [_layer(place, group) for place, group in sorted(found.items())]


def reader(parameter: Parameter) -> Node | None:
    """The first operator of the model that reads it."""
    return next((node for node in (*parameter.uses, *parameter.consumers) if node.index >= 0), None)


def _layer(place: int, group: Sequence[tuple[Node, Parameter]]) -> Layer:
    node = group[0][0]
    weights = tuple(p.name for _, p in group if is_matrix(p))
    others = tuple(p.name for _, p in group if not is_matrix(p))
    first = next((t for t in node.inputs if t is not None and not t.is_constant), None)
    return Layer(
        place,
        node.op.name,
        weights,
        others if weights else (),
        () if weights else others,
        sum(p.tensor.type.size for _, p in group),
        0 if first is None else first.type.nbytes,
        any(p.has_channels for _, p in group if is_matrix(p)),
    )


def is_matrix(parameter: Parameter) -> bool:
    return sum(size > 1 for size in parameter.tensor.shape) > 1
