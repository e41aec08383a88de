"""Training with bfloat16 activations: what is rounded, and where rounded tensors lie in half the memory.

Rounding is arithmetic and belongs to the graph: it is there before an engine joins nodes, and is the same for all engines.
Storing is not: only what is rounded already is narrowed, so that nothing is lost by it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Set
from dataclasses import fields
from types import MappingProxyType

from circle_train.ir import DType, Graph, Node, Tensor
from circle_train.ops.base import Op
from circle_train.ops.internal.bfloat16 import PRODUCTS, Narrow, RoundToBfloat16, Widen
from circle_train.ops.internal.fused import Fused
from circle_train.ops.internal.gradient import ActivationGradient, Gradient, Gradients
from circle_train.ops.internal.pool_places import MaxPoolScatter
from circle_train.ops.layers.conv import Conv2D
from circle_train.ops.numeric.unary import Log
from circle_train.ops.shapes.shape import Transpose

LEAST = 4096
"""Elements of a tensor that is worth rounding; statistics and the like stay as they are."""
LEAST_CHANNELS = 16
Form = tuple[Op, Op]
"""What brings a tensor into a smaller form without loss, and what back."""
BFLOAT16: Form = (Narrow(), Widen())
NEAR = 6
"""Nodes between two readers of one widened tensor; over a longer way it is widened anew."""


def round_operands(graph: Graph, influenced: Set[Tensor]) -> None:
    """Products that training differentiates multiply bfloat16s; those of frozen layers stay as the file has them."""
    for node in graph.nodes:
        made = PRODUCTS.get(type(node.op))
        if made is not None and node.outputs[0] in influenced and _is_float32(node) and _gains(node):
            node.op = made(**{field.name: getattr(node.op, field.name) for field in fields(node.op)})


def round_activations(graph: Graph, forward: Iterable[Node], keep: Iterable[Tensor]) -> set[Tensor]:
    """Round what the forward nodes make and gradients read; the tensors that hold nothing but bfloat16s then.

    What a logarithm is taken of stays: near 1, as in a softplus, rounding would leave nothing of the result.
    """
    forward, fixed = list(forward), set(keep)
    fixed.update(t for node in forward if isinstance(node.op, Log) for t in node.inputs if t is not None)
    makers = {out: node for node in forward for out in node.outputs}
    read = {t for node in graph.nodes if is_backward(node.op) for t in node.inputs if t is not None}
    chosen = dict.fromkeys(_source(t, makers, fixed) for t in makers if t in read and _counts(t, fixed))
    twins = {t: Tensor(f"bfloat16({t.name})", t.type) for t in chosen}
    for tensor, twin in twins.items():
        for reader in graph.readers(tensor):
            graph.reconnect(reader, [twin if t is tensor else t for t in reader.inputs])
        graph.insert(Node(RoundToBfloat16(), [tensor], [twin]), after=tensor.producer)
    rounded = set(twins.values())
    for node in graph.nodes:
        if _moves(node.op) and node.inputs[0] in rounded:
            rounded.update(node.outputs)
    return rounded


def store_narrow(graph: Graph, rounded: Set[Tensor]) -> None:
    """Narrow what waits for its gradient, and widen it again where that is computed."""
    store(graph, dict.fromkeys(rounded, BFLOAT16))


def store(
    graph: Graph, forms: Mapping[Tensor, Form], known: Mapping[Tensor, Tensor] = MappingProxyType({})
) -> None:
    """Keep each of these tensors in its form from its last reader of the forward part to its gradients.

    Of some it is known where they lie in that form.
    """
    start = next((i for i, node in enumerate(graph.nodes) if is_backward(node.op)), len(graph.nodes))
    waiting = _waiting(graph, forms.keys(), start)
    narrow: dict[Tensor, Node] = {}
    for tensor in waiting:
        if tensor not in known:
            op = forms[tensor][0]
            (made,) = op.infer_types([tensor.type])
            narrow[tensor] = Node(op, [tensor], [Tensor(f"narrow({tensor.name})", made)])
    kept = {**known, **{tensor: node.outputs[0] for tensor, node in narrow.items()}}
    wide: dict[Tensor, tuple[int, Tensor]] = {}
    for i, node in enumerate(graph.nodes):
        for tensor in dict.fromkeys(t for t in node.inputs if t in waiting and i >= start):
            assert tensor is not None
            last, twin = wide.get(tensor, (-NEAR - 1, tensor))
            if i - last > NEAR:
                twin = Tensor(tensor.name, tensor.type)
                graph.insert(Node(forms[tensor][1], [kept[tensor]], [twin]), before=node)
            wide[tensor] = i, twin
            graph.reconnect(node, [twin if t is tensor else t for t in node.inputs])
    for tensor, node in reversed(narrow.items()):
        graph.insert(node, after=tensor.producer)


def is_backward(op: Op) -> bool:
    """Whether the op computes a gradient of what the model computes."""
    if isinstance(op, Fused):
        return any(is_backward(part.op) for part in op.parts)
    return isinstance(op, (Gradient, Gradients, ActivationGradient, MaxPoolScatter))


def _waiting(graph: Graph, rounded: Set[Tensor], start: int) -> dict[Tensor, None]:
    """Rounded tensors made before `start` and read behind it, in the order of their readers."""
    late = {out for node in graph.nodes[start:] for out in node.outputs} | set(graph.outputs)
    read = (t for node in graph.nodes[start:] for t in node.inputs)
    return dict.fromkeys(t for t in read if t is not None and t in rounded and t not in late)


def _source(tensor: Tensor, makers: dict[Tensor, Node], fixed: Set[Tensor]) -> Tensor:
    """What the tensor's elements are computed as: rounding and moving elements may change places."""
    node = makers[tensor]
    while _moves(node.op) and node.inputs[0] in makers and node.inputs[0] not in fixed:
        tensor = node.inputs[0]
        node = makers[tensor]
    return tensor


def _moves(op: Op) -> bool:
    return op.view_of is not None or isinstance(op, Transpose)


def _counts(tensor: Tensor, fixed: Set[Tensor]) -> bool:
    return tensor.dtype is DType.FLOAT32 and tensor.type.size >= LEAST and tensor not in fixed


def _gains(node: Node) -> bool:
    """Convolutions of few channels or of groups do not; those of 3×3 are faster by Winograd's algorithm, in float32."""
    op, (x, w) = node.op, node.inputs[:2]
    assert x is not None and w is not None
    if not isinstance(op, Conv2D):
        return True
    by_winograd = w.shape[1:3] == (3, 3) and op.strides == op.dilations == (1, 1)
    return x.shape[3] == w.shape[3] >= LEAST_CHANNELS and not by_winograd


def _is_float32(node: Node) -> bool:
    return all(t is None or t.dtype is DType.FLOAT32 for t in (*node.inputs, *node.outputs))
