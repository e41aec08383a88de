"""Reverse-mode differentiation as a transformation of the graph."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain

import numpy as np

from circle_train.compile.steep import is_recurrent, is_steep
from circle_train.errors import UnsupportedOpError
from circle_train.ir import Graph, Node, Tensor
from circle_train.ir.graph import constant
from circle_train.ops.internal.gradient import (
    ActivationGradient,
    Gradient,
    Gradients,
    GuardFinite,
    Zeros,
    influence,
)
from circle_train.ops.numeric.arithmetic import Add


def add_backward(
    graph: Graph, loss: Tensor, weights: Iterable[Tensor], share: float = 1.0, narrowed: Mapping[Node, Node] | None = None,
) -> dict[Tensor, Tensor]:  # fmt: skip
    """Append the nodes that compute d (share · loss) / d weight; only what lies between the two is visited."""
    weights = list(weights)
    fewer = narrowed or {}  # layers of few channels, of which theirs is the weights' gradient
    influenced = influence(graph, weights)
    path = [node for node in graph.nodes if any(out in influenced for out in node.outputs)]
    path = _towards(path, loss)
    refuse_undifferentiable(path, influenced)
    gradients: dict[Tensor, Tensor] = {loss: constant(np.full(loss.shape, share, np.float32), "seed")}
    for node in reversed(path):
        dys = [gradients.pop(out, None) for out in node.outputs]
        if any(dy is not None for dy in dys):
            _add_node_gradients(graph, node, fewer.get(node, node), dys, influenced, gradients)
    uses = Counter(t for node in path for t in node.inputs)
    for weight in weights:
        if weight in gradients and is_recurrent(weight, uses[weight]):
            graph.emit_all(GuardFinite(f"'{weight.name}'"), gradients[weight])
    return {weight: gradients[weight] for weight in weights if weight in gradients}


def refuse_undifferentiable(path: list[Node], influenced: set[Tensor]) -> None:
    """One message with every operator on the path that has no gradient."""
    offending = without_gradients(path, influenced)
    if offending:
        raise UnsupportedOpError(
            f"{len(offending)} operator(s) between the trained parameters and the loss cannot be differentiated: "
            f"{'; '.join(offending)}; train only operators behind them, e.g. trainable=('last', n)"
        )


def without_gradients(path: list[Node], influenced: set[Tensor]) -> list[str]:
    """The operators that lack a gradient for what is influenced, and for which operands."""
    offending = []
    for node in path:
        missing = [
            node.op.input_name(i)
            for i, x in enumerate(node.inputs)
            if x in influenced and node.op.input_name(i) not in node.op.gradients
        ]
        if missing:
            why = getattr(node.op, "obstacle", "")
            offending.append(
                f"{node} has no gradient for {', '.join(dict.fromkeys(missing))}{why and f', for {why}'}"
            )
    return offending


def _towards(path: list[Node], loss: Tensor) -> list[Node]:
    """The nodes from which the loss can be reached."""
    reached, kept = {loss}, []
    for node in reversed(path):
        if any(out in reached for out in node.outputs):
            kept.append(node)
            reached.update(x for x in node.inputs if x is not None)
    return kept[::-1]


def _add_node_gradients(
    graph: Graph,
    node: Node,
    few: Node,
    dys: list[Tensor | None],
    influenced: set[Tensor],
    gradients: dict[Tensor, Tensor],
) -> None:
    """Gradients of one node's influenced inputs; activations first, so that what they need is freed last."""
    filled = [
        dy if dy is not None else graph.emit(Zeros(out.type))
        for dy, out in zip(dys, node.outputs, strict=True)
    ]
    if node.op.activation:
        kind = ActivationGradient(node.op.activation)
        filled = [
            graph.emit(kind, dy, out, name=f"d_pre({out.name})")
            for dy, out in zip(filled, node.outputs, strict=True)
        ]
    wanted = [(i, x) for i, x in enumerate(node.inputs) if x is not None and x in influenced]
    joint = [i for i, _ in wanted if node.op.input_name(i) in node.op.together]
    together = dict(zip(joint, _joint_gradients(graph, node, joint, filled), strict=True)) if joint else {}
    steep = is_steep(node)
    for i, x in sorted(wanted, key=lambda pair: pair[1].producer is None):
        of = few if node.op.input_name(i) == node.op.by_channel else node
        gradient = together[i] if i in together else _gradient(graph, of, i, filled)
        if steep:
            graph.emit_all(GuardFinite(str(node)), gradient)
        so_far = gradients.get(x)
        gradients[x] = (
            gradient if so_far is None else graph.emit(Add(), so_far, gradient, name=f"d({x.name})")
        )


def _gradient(graph: Graph, node: Node, index: int, dys: list[Tensor]) -> Tensor:
    """The node that computes the gradient with respect to one input, or dy itself where that is the same.

    A gradient of a product costs what the product does; that of a bias is a sum over the output.
    """
    op, x = node.op, node.inputs[index]
    assert x is not None
    name = op.input_name(index)
    if name in op.identity_gradient and dys[0].shape == x.shape:
        return dys[0]
    reads, shapes = _arguments(node, op.gradients[name].needs, dys)
    if "index" in op.gradients[name].needs:
        shapes["index"] = index - (len(op.inputs) - 1 if op.is_variadic else 0)
    gradient = Gradient(
        of=op,
        wrt=index,
        type=x.type,
        counts=_counts(reads),
        shapes=shapes,
        work=node.flops if x.type.rank > 1 else sum(out.type.size for out in node.outputs),
        source=node.index,
    )
    return graph.emit(gradient, *chain(*reads.values()), name=f"d({x.name})")


def _joint_gradients(graph: Graph, node: Node, indices: list[int], dys: list[Tensor]) -> list[Tensor]:
    """The node that computes the gradients of several inputs at once."""
    op = node.op
    xs = [x for i in indices if (x := node.inputs[i]) is not None]
    reads, shapes = _arguments(node, op.gradients[op.together[0]].needs, dys)
    gradients = Gradients(
        of=op,
        wrt=tuple(indices),
        types=tuple(x.type for x in xs),
        counts=_counts(reads),
        shapes=shapes,
        work=2 * node.flops,
        source=node.index,
    )
    made = graph.emit_all(gradients, *chain(*reads.values()))
    for gradient, x in zip(made, xs, strict=True):
        gradient.name = f"d({x.name})"
    return made


def _arguments(
    node: Node, needs: Sequence[str], dys: list[Tensor]
) -> tuple[dict[str, list[Tensor | None]], dict[str, object]]:
    """What a gradient's method asks for: tensors that must be kept, and shapes, which are known by now."""
    made: dict[str, Sequence[Tensor | None]] = {"dy": dys, "dys": dys, "y": node.outputs}
    padded, names = node.op.pad(node.inputs), [spec.name for spec in node.op.inputs]
    tensors: dict[str, list[Tensor | None]] = {}
    shapes: dict[str, object] = {}
    for need in needs:
        name = need if need in names else need.removesuffix("_shape")
        if name in names:
            position = names.index(name)
            is_variadic = node.op.inputs[position].variadic
            group = padded[position:] if is_variadic else padded[position : position + 1]
        elif name in made:
            group, is_variadic = list(made[name]), name == "dys"
        else:
            continue
        if name == need:
            tensors[need] = group
        else:
            sizes = [None if t is None else t.shape for t in group]
            shapes[need] = sizes if is_variadic else sizes[0]
    return tensors, shapes


def _counts(reads: Mapping[str, Sequence[Tensor | None]]) -> tuple[tuple[str, int], ...]:
    return tuple((name, len(group)) for name, group in reads.items())
