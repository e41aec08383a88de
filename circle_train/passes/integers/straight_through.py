"""The roundings of a model with QuantizeLinear and DequantizeLinear as operators that gradients pass.

Floats that become integers behind one, and floats again, are the rounded numbers themselves from here on.
"""

from __future__ import annotations

import numpy as np

from circle_train.ir import Graph, Node, Tensor
from circle_train.ir.graph import constant
from circle_train.ir.node import Rounding
from circle_train.ops.internal.integers.round_within import RoundWithin
from circle_train.ops.numeric.arithmetic import Add, Mul, Sub
from circle_train.ops.numeric.fill import Cast
from circle_train.ops.seldom.fake_quant import FakeQuant
from circle_train.passes.dead import drop_dead_nodes


def learn_through_rounding(graph: Graph) -> None:
    """Put a RoundWithin in the place of each formula, and in that of the CASTs that turn its integers to floats."""
    for node in graph.nodes:
        if isinstance(node.op, FakeQuant):
            _spell_out(graph, node)
    found = [(node, node.hint) for node in graph.nodes if isinstance(node.hint, Rounding)]
    for node, hint in found:
        zero = [] if hint.zero is None else [hint.zero]
        graph.replace(
            [node], Node(RoundWithin(hint.low, hint.high), [hint.x, *zero], node.outputs, node.index)
        )
        _pass_by_integers(graph, node)
    if found:
        drop_dead_nodes(graph)


def _pass_by_integers(graph: Graph, node: Node) -> None:
    (rounded,) = node.outputs
    for narrow in graph.readers(rounded):
        for wide in graph.readers(narrow.outputs[0]) if isinstance(narrow.op, Cast) else ():
            if isinstance(wide.op, Cast) and wide.outputs[0].dtype is rounded.dtype:
                graph.redirect(wide.outputs[0], rounded)


def _spell_out(graph: Graph, node: Node) -> None:
    """FAKE_QUANT as steps that are counted, rounded and put back on their scale."""
    assert isinstance(node.op, FakeQuant)
    x, y = node.inputs[0], node.outputs[0]
    assert x is not None
    low, high, scale = node.op.grid(np.float32)
    rounded = RoundWithin(0, float(np.rint((high - low) / scale)))
    for op, number in ((Sub(), low), (Mul(), 1 / scale), (rounded, None), (Mul(), scale)):
        operands: list[Tensor | None] = [x] if number is None else [x, constant(np.float32(number))]
        made = Tensor(f"{y.name}:{op.name.lower()}", y.type)
        graph.insert(Node(op, operands, [made], node.index), before=node)
        x = made
    graph.replace([node], Node(Add(), [x, constant(np.float32(low))], [y], node.index))
