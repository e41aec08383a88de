"""What is asked of a graph by name, and what it must be to be compiled."""

from __future__ import annotations

from collections.abc import Sequence

from circle_train.errors import ConfigError, ModelError, UnsupportedOpError
from circle_train.ir import Graph, Node, Tensor


def choose_outputs(graph: Graph, names: Sequence[str]) -> Graph:
    """Let the graph's outputs be the tensors of these names, if any are given."""
    if names:
        graph.outputs = _made(graph, names, "outputs")
    return graph


def find_extra(graph: Graph, names: Sequence[str]) -> list[Tensor]:
    """The tensors of these names that every step reports."""
    return _made(graph, names, "extra_outputs")


def _made(graph: Graph, names: Sequence[str], setting: str) -> list[Tensor]:
    """The tensors of these names that nodes make."""
    made = {out.name: out for node in graph.nodes for out in node.outputs}
    if unknown := [name for name in names if name not in made]:
        raise ConfigError(
            f"{setting}: no operator makes '{unknown[0]}'; expected one of {', '.join(list(made)[:8])}, … "
            "(see the operators' outputs in `circle-train info`)"
        )
    return [made[name] for name in names]


def open_shapes(graph: Graph) -> list[str]:
    """Nodes whose output shapes are not known before running."""
    return [str(node) for node in graph.nodes if not all(out.type.is_static for out in node.outputs)]


def refuse_open_shapes(graph: Graph) -> None:
    """Training wants to know everything beforehand; what lies before that can be trained."""
    found = open_shapes(graph)
    if not found:
        return
    shown = ", ".join(found[:MOST_SHOWN]) + (", and what follows" if len(found) > MOST_SHOWN else "")
    said = f"{len(found)} operator(s) have shapes that depend on the values of the data: {shown}; "
    last = _last_of_known_shape(graph)
    if last is None:
        raise ModelError(f"{said}such a model can be run by InferenceSession, not trained")
    raise ConfigError(
        f"{said}such a model can be run by InferenceSession; the last tensor of floats before them is '{last.name}' "
        f"({last.type}): TrainConfig(outputs=['{last.name}']) trains there"
    )


def _last_of_known_shape(graph: Graph) -> Tensor | None:
    """Floats that something of unknown shape is made of, computed as late as may be."""
    known: list[Tensor] = []
    for node in graph.nodes:
        if not all(out.type.is_static for out in node.outputs):
            known += [t for t in node.inputs if t is not None and t.type.is_static and t.dtype.is_float]
    computed = {t: t.producer for t in known if t.producer is not None and t.type.size > 1}
    place = {node: number for number, node in enumerate(graph.nodes)}
    return max(computed, key=lambda t: place[computed[t]], default=None)


MOST_SHOWN = 5
"""Operators whose shapes depend on data, of which the first is the reason of most others."""
STRINGS = "it works on strings, circle_train on numbers"
REASONS = dict.fromkeys(
    ("HASHTABLE", "HASHTABLE_FIND", "HASHTABLE_IMPORT", "HASHTABLE_SIZE", "SKIP_GRAM"), STRINGS
)
"""Why we have no class for operators that LiteRT computes; its tables have strings as keys or as values."""


def reason(node: Node) -> str:
    """Said behind an operator's name."""
    return f" ({REASONS[node.op.name]})" if node.op.name in REASONS else ""


def refuse_unrunnable(graph: Graph) -> None:
    """One message with every operator in the way that we cannot compute."""
    unknown = [f"{node}{reason(node)}" for node in graph.nodes if not node.op.is_runnable]
    if unknown:
        raise UnsupportedOpError(
            f"{len(unknown)} operator(s) cannot be computed: {', '.join(unknown)}; "
            "cut the model before them or convert it to operators listed in docs/ops.md"
        )
