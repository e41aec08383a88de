"""QuantizeLinear and DequantizeLinear of a converted model as one rounding that gradients pass.

The converter writes x/scale → ROUND → ADD zero point → MAXIMUM → MINIMUM → CAST to integers, which it marks, and CAST back
to floats behind it. Whoever reads those floats reads the rounded numbers themselves from here on.
"""

from __future__ import annotations

from circle_train.ir import Graph, Node, Tensor
from circle_train.ir.node import made_by
from circle_train.ops.internal.round_within import RoundWithin
from circle_train.passes.dead import drop_dead_nodes

MARK = "straight_through"
"""What the CAST to integers carries."""


def learn_through_rounding(graph: Graph) -> None:
    """Put a RoundWithin beside each marked CAST, and in the place of the CASTs that turn its integers to floats."""
    marked = [node for node in graph.nodes if MARK in node.carried]
    for cast in marked:
        rounding = _rounding(cast)
        if rounding is not None:
            graph.insert(rounding, after=cast)
            _read_instead(graph, cast.outputs[0], rounding.outputs[0])
    if marked:
        drop_dead_nodes(graph)


def _read_instead(graph: Graph, integers: Tensor, rounded: Tensor) -> None:
    """Whoever reads the integers as floats reads the rounded numbers."""
    for reader in graph.readers(integers):
        if reader.op.name == "CAST" and reader.outputs[0].dtype is rounded.dtype:
            graph.redirect(reader.outputs[0], rounded)


def _rounding(cast: Node) -> Node | None:
    """One node for what leads up to the CAST; None where a changed model has something else there."""
    below = made_by(cast.inputs[0], "MINIMUM")
    above = made_by(below.inputs[0], "MAXIMUM") if below else None
    if below is None or above is None:
        return None
    shifted = above.inputs[0]
    addition = made_by(shifted, "ADD")
    round_ = made_by(addition.inputs[0] if addition else shifted, "ROUND")
    limits = [node.inputs[1] for node in (above, below)]
    if round_ is None or not all(t is not None and t.is_constant and t.type.size == 1 for t in limits):
        return None
    low, high = (float(t.data.reshape(-1)[0]) for t in limits if t is not None)
    zero = [addition.inputs[1]] if addition else []
    output = Tensor(f"{cast.outputs[0].name}:rounded", below.outputs[0].type)
    return Node(RoundWithin(low, high), [round_.inputs[0], *zero], [output], cast.index)
