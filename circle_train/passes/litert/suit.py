"""A graph as LiteRT takes it: biases lent, operators that only Circle has spelt out, element types that it lacks cast."""

from __future__ import annotations

from circle_train.ir import Graph
from circle_train.ir.verify import verify
from circle_train.passes.litert.bias import lacks_bias, lend_bias
from circle_train.passes.litert.floats import carry_float32, compute_in_float32, is_other_float
from circle_train.passes.litert.integers import compute_in_other_integers, is_other_integer
from circle_train.passes.litert.spelling import is_foreign, spell_out

STEPS = (lend_bias, spell_out, compute_in_float32, compute_in_other_integers)
CONCERNS = (lacks_bias, is_foreign, is_other_float, is_other_integer)


def is_refused(graph: Graph) -> bool:
    """Whether some step has something to do."""
    return any(concerns(node) for node in graph.nodes for concerns in CONCERNS)


def suit(graph: Graph, is_inner: bool = False) -> None:
    """Rewrite what LiteRT would refuse; the numbers stay. `is_inner`: an operator runs the graph."""
    for step in STEPS:
        (carry_float32 if is_inner and step is compute_in_float32 else step)(graph)
        verify(graph)
    for index, node in enumerate(graph.nodes):
        node.index = index
