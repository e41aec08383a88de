"""Normalisation of rows: statistics are kept for the gradients, which are one pass, updates included."""

from __future__ import annotations

from collections.abc import Callable

from circle_train.backends.native.binders.update import Fate
from circle_train.backends.native.fusion.rewriter import Rewriter
from circle_train.backends.native.fusion.weights import Destiny, WeightOptions, destiny
from circle_train.ir import DType, Node, Tensor, TensorType
from circle_train.ops.base import Op
from circle_train.ops.internal.gradient import Gradient
from circle_train.ops.internal.norms.layer_norm import LayerNorm, LayerNormStatistics, RmsNormStatistics
from circle_train.ops.layers.norm import RmsNorm
from circle_train.record import record


@record
class NormOptions:
    """The op, and what each output is."""

    op: Op
    made: tuple[str, ...]


@record
class Norm:
    """The kernel's name, what computes the statistics that the gradients read, and their names."""

    kernel: str
    statistics: Callable[[float], Op]
    kept: tuple[str, ...]


NORMS: dict[type[Op], Norm] = {
    LayerNorm: Norm("layer_norm", LayerNormStatistics, ("mean", "rstd")),
    RmsNorm: Norm("rms_norm", RmsNormStatistics, ("rstd",)),
}


def join_norms(rewriter: Rewriter) -> None:
    """Forward with statistics, and the gradients of x, gamma and beta together."""
    for node in rewriter.nodes():
        x = node.inputs[0] if type(node.op) in NORMS else None
        if x is not None and x.dtype is DType.FLOAT32 and _is_one_a_column(node.inputs[1], x):
            gradients = _gradients(rewriter, node)
            if "x" in gradients or "gamma" in gradients:
                _join(rewriter, node, gradients)


def _is_one_a_column(gamma: Tensor | None, x: Tensor) -> bool:
    return gamma is not None and gamma.shape == x.shape[-1:]


def _gradients(rewriter: Rewriter, node: Node) -> dict[str, Node]:
    """The nodes that compute this norm's gradients, by input."""
    candidates = [r for tensor in node.inputs[:2] for r in rewriter.readers(tensor)]
    found = [n for n in candidates if isinstance(n.op, Gradient) and n.op.of is node.op]
    dys = dict.fromkeys(n.inputs[0] for n in found)
    beside = [r for dy in dys for r in rewriter.readers(dy)]
    found += [r for r in beside if isinstance(r.op, Gradient) and r.op.of is node.op]
    return {n.op.of.input_name(n.op.wrt): n for n in found} if len(dys) == 1 else {}


def stored(gradient: Node) -> Destiny:
    """A gradient of parameters beside that of x waits: what is made of x's may refuse the step, and so comes before updates."""
    return Destiny(Fate(), [gradient], {}, [gradient.outputs[0]])


def _join(rewriter: Rewriter, node: Node, gradients: dict[str, Node]) -> None:
    x, gamma, *beta = node.inputs
    assert x is not None
    y, op = node.outputs[0], node.op
    norm = NORMS[type(op)]
    rows = TensorType(x.dtype, x.shape[:-1])
    statistics = [Tensor(f"{name}({y.name})", rows) for name in norm.kept]
    extra = Node(norm.statistics(op.epsilon), [x], statistics, members=[])
    rewriter.insert(extra, after=node)
    made = NormOptions(op, ("y", *norm.kept))
    given = {"x": x, "gamma": gamma, "beta": beta[0] if beta else None}
    rewriter.fuse([node, extra], norm.kernel, given, [y, *statistics], made)
    members, results, names = [], [], []
    roles: dict[str, Tensor | None] = {
        "dy": None,
        "x": x,
        "gamma": gamma,
        **dict(zip(norm.kept, statistics, strict=True)),
    }
    fates = {}
    for name, gradient in gradients.items():
        roles["dy"] = gradient.inputs[0]
        if name == "x":
            members.append(gradient)
            results.append(gradient.outputs[0])
            names.append("dx")
            continue
        short = {"gamma": "w", "beta": "b"}[name]
        end = stored(gradient) if "x" in gradients else destiny(rewriter, gradient, short)
        fates[short] = end.fate
        members += end.members
        roles.update(end.roles)
        results += end.stored
        names += [short] if end.stored else []
    assert gamma is not None
    settings = WeightOptions(op, gamma.shape, fates.get("w"), fates.get("b"), tuple(names))
    rewriter.fuse(members, f"{norm.kernel}_gradient", roles, results, settings)
