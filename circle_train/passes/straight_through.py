"""QuantizeLinear and DequantizeLinear of a converted model as one rounding that gradients pass.

The converter writes x/scale → ROUND → ADD zero point → MAXIMUM → MINIMUM → CAST to integers, which it marks, and CAST back
to floats behind it. Whoever reads those floats reads the rounded numbers themselves from here on.
"""

from __future__ import annotations

from circle_train.ir import Graph, Node, Tensor
from circle_train.ops.round_within import RoundWithin
from circle_train.passes.dead import drop_dead_nodes

MARK = "straight_through"
"""What the CAST to integers carries."""


def learn_through_rounding(graph: Graph) -> None:
    """Put a RoundWithin beside each marked CAST, and in the place of the CASTs that turn its integers to floats."""
    rounded: dict[Tensor, Tensor] = {}
    floats: dict[Tensor, Tensor] = {}
    nodes: list[Node] = []
    for node in graph.nodes:
        node.inputs = [t if t is None else floats.get(t, t) for t in node.inputs]
        source = node.inputs[0] if node.inputs else None
        nodes.append(node)
        if source in rounded and node.op.name == "CAST" and node.outputs[0].dtype is rounded[source].dtype:
            floats[node.outputs[0]] = rounded[source]
        elif MARK in node.carried and (made := _rounding(node)) is not None:
            nodes.append(made)
            rounded[node.outputs[0]] = made.outputs[0]
    graph.outputs = [floats.get(tensor, tensor) for tensor in graph.outputs]
    graph.nodes = nodes
    if rounded:
        drop_dead_nodes(graph)


def _rounding(cast: Node) -> Node | None:
    """One node for what leads up to the CAST; None where a changed model has something else there."""
    below = _made_by(cast.inputs[0], "MINIMUM")
    above = _made_by(below.inputs[0], "MAXIMUM") if below else None
    if below is None or above is None:
        return None
    shifted = above.inputs[0]
    addition = _made_by(shifted, "ADD")
    round_ = _made_by(addition.inputs[0] if addition else shifted, "ROUND")
    limits = [node.inputs[1] for node in (above, below)]
    if round_ is None or not all(t is not None and t.is_constant and t.type.size == 1 for t in limits):
        return None
    low, high = (float(t.data.reshape(-1)[0]) for t in limits if t is not None)
    zero = [addition.inputs[1]] if addition else []
    output = Tensor(f"{cast.outputs[0].name}:rounded", below.outputs[0].type)
    made = Node(RoundWithin(low, high), [round_.inputs[0], *zero], [output], cast.index)
    output.producer = made
    return made


def _made_by(tensor: Tensor | None, name: str) -> Node | None:
    producer = None if tensor is None else tensor.producer
    return producer if producer is not None and producer.op.name == name else None
