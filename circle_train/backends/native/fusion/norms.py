"""Layer normalisation: statistics are kept for the gradients, which are one pass, updates included."""

from __future__ import annotations

from circle_train.backends.native.fusion.rewriter import Rewriter
from circle_train.backends.native.fusion.weights import WeightOptions, destiny
from circle_train.ir import DType, Node, Tensor
from circle_train.ops.base import Op
from circle_train.ops.internal.gradient import Gradient
from circle_train.ops.internal.layer_norm import LayerNorm, LayerNormStatistics
from circle_train.record import record


@record
class NormOptions:
    """The op, and what each output is."""

    op: Op
    made: tuple[str, ...]


def join_norms(rewriter: Rewriter) -> None:
    """Forward with statistics, and the gradients of x, gamma and beta together."""
    for node in rewriter.nodes():
        if (
            type(node.op) is LayerNorm
            and node.inputs[0] is not None
            and node.inputs[0].dtype is DType.FLOAT32
        ):
            gradients = _gradients(rewriter, node)
            if "x" in gradients or "gamma" in gradients:
                _join(rewriter, node, gradients)


def _gradients(rewriter: Rewriter, node: Node) -> dict[str, Node]:
    """The nodes that compute this norm's gradients, by input."""
    candidates = {
        r for t in (node.inputs[0], node.inputs[1]) if t is not None for r in rewriter.readers.get(t, [])
    }
    found = [n for n in candidates if isinstance(n.op, Gradient) and n.op.of is node.op]
    dys = {n.inputs[0] for n in found}
    for dy in dys:
        if dy is not None:
            found += [
                r for r in rewriter.readers.get(dy, []) if isinstance(r.op, Gradient) and r.op.of is node.op
            ]
    return {n.op.of.input_name(n.op.wrt): n for n in found} if len(dys) == 1 else {}


def _join(rewriter: Rewriter, node: Node, gradients: dict[str, Node]) -> None:
    x, gamma, beta = node.inputs
    assert x is not None
    y, op = node.outputs[0], node.op
    statistics = [
        Tensor(f"{name}({y.name})", t)
        for name, t in zip(("mean", "rstd"), LayerNormStatistics(op.epsilon).infer(x.type), strict=True)
    ]
    extra = Node(LayerNormStatistics(op.epsilon), [x], statistics, carried={"members": []})
    rewriter.insert(extra, rewriter.position[node] + 1 / 128)
    made = NormOptions(op, ("y", "mean", "rstd"))
    rewriter.fuse([node, extra], "layer_norm", {"x": x, "gamma": gamma, "beta": beta}, [y, *statistics], made)
    members, results, names = [], [], []
    roles: dict[str, Tensor | None] = {
        "dy": None,
        "x": x,
        "gamma": gamma,
        "mean": statistics[0],
        "rstd": statistics[1],
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
        end = destiny(rewriter, gradient, short)
        fates[short] = end.fate
        members += end.members
        roles.update(end.roles)
        results += end.stored
        names += [short] if end.stored else []
    assert gamma is not None
    settings = WeightOptions(op, gamma.shape, fates.get("w"), fates.get("b"), tuple(names))
    rewriter.fuse(members, "layer_norm_gradient", roles, results, settings)
