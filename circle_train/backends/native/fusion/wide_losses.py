"""The gradient of a loss over many classes is larger than all else: the products that read it make it themselves."""

from __future__ import annotations

from dataclasses import replace

from circle_train.backends.native.fusion.products import ProductOptions
from circle_train.backends.native.fusion.rewriter import Rewriter, fused_node
from circle_train.backends.native.fusion.weights import WeightOptions
from circle_train.ir import DType, Node, Tensor
from circle_train.ops.attributes import Activation
from circle_train.ops.internal.fused import Fused, Part
from circle_train.ops.internal.gradient import Gradient
from circle_train.ops.internal.loss import SparseSoftmaxStatistics
from circle_train.ops.layers.linear import FullyConnected
from circle_train.record import record

WIDE, MANY = 4 << 20, 256
"""Bytes and classes of a gradient from which its memory is worth making its exponentials twice more."""


@record
class OfLoss:
    """The settings of a product's gradient, and what that of the loss is multiplied by."""

    product: ProductOptions | WeightOptions
    scale: float


def spread_wide_losses(rewriter: Rewriter) -> None:
    """Losses of labels whose gradient by the logits nobody but the gradients of one FULLY_CONNECTED reads."""
    for node in rewriter.nodes():
        op = node.op
        if not isinstance(op, Fused) or op.kernel != "cross_entropy" or op.settings.made != ("loss", "dx"):
            continue
        dx, given = node.outputs[1], op.by_role(node.inputs)
        is_wide = dx.shape[-1] >= MANY and dx.type.nbytes >= WIDE
        if not is_wide or op.settings.probabilities or given["target"].dtype is not DType.INT32:
            continue
        readers = rewriter.readers(dx)
        if dx not in rewriter.keep and all(_product(reader, dx) is not None for reader in readers):
            loss = _loss_alone(node)
            named = {
                "dy": given["x"],
                "label": given["target"],
                "top": loss.outputs[1],
                "rate": loss.outputs[2],
            }
            made = [_of_loss(reader, node, named) for reader in readers]
            rewriter.replace([node], loss)
            for reader, product in zip(readers, made, strict=True):
                rewriter.replace([reader], product)


def _product(
    reader: Node, dx: Tensor
) -> tuple[str, dict[str, Tensor | None], ProductOptions | WeightOptions] | None:
    """Kernel, roles and settings of a gradient of FULLY_CONNECTED, fused with others or not, whose dy is dx."""
    op = reader.op
    if isinstance(op, Fused) and op.kernel in ("fully_connected_x", "fully_connected_w"):
        found = op.kernel, op.by_role(reader.inputs), op.settings
    elif isinstance(op, Gradient) and op.of.input_name(op.wrt) == "x":
        roles = dict(zip((name for name, _ in op.counts), reader.inputs, strict=True))
        found = "fully_connected_x", roles, ProductOptions(op.of, Activation.NONE)
    else:
        return None
    is_only_dy = [role for role, tensor in found[1].items() if tensor is dx] == ["dy"]
    return found if type(found[2].op) is FullyConnected and is_only_dy else None


def _of_loss(reader: Node, loss: Node, named: dict[str, Tensor]) -> Node:
    """The product that makes the loss's gradient itself."""
    dx = loss.outputs[1]
    found = _product(reader, dx)
    assert found is not None
    kernel, roles, settings = found
    again = Tensor(f"again({dx.name})", dx.type)
    gradient = Node(_making(loss.op, 1), list(loss.inputs), [again], loss.index, [])
    inputs = [again if tensor is dx else tensor for tensor in reader.inputs]
    product = Node(reader.op, inputs, list(reader.outputs), reader.index, reader.originals)
    options = OfLoss(settings, loss.op.settings.gradient_scale)
    return fused_node([gradient, product], f"{kernel}_of_loss", roles | named, reader.outputs, options, ())


def _loss_alone(node: Node) -> Node:
    """The loss, and of each row what its gradient is made with."""
    op, (x, target) = _making(node.op, 0), (_place(node.op, role) for role in ("x", "target"))
    statistics = SparseSoftmaxStatistics(op.settings.gradient_scale)
    last = 1 + max(number for part in node.op.parts for number in part.outputs)
    types = statistics.infer(
        *(known.type for known in (node.inputs[x], node.inputs[target]) if known is not None)
    )
    rows = [
        Tensor(f"{role}({node.outputs[1].name})", t) for role, t in zip(("top", "rate"), types, strict=True)
    ]
    op = replace(
        op,
        parts=(*op.parts, Part(statistics, (x, target), (last, last + 1))),
        results=(*op.results, last, last + 1),
        types=(*op.types, *types),
        settings=replace(op.settings, made=("loss", "top", "rate")),
    )
    return Node(op, list(node.inputs), [node.outputs[0], *rows], node.index, node.originals)


def _place(op: Fused, role: str) -> int:
    return next(i for i, roles in enumerate(op.roles) if role in roles)


def _making(op: Fused, index: int) -> Fused:
    """The same, of its parts no more than one result wants."""
    wanted, parts = {op.results[index]}, []
    for part in reversed(op.parts):
        if wanted.intersection(part.outputs):
            wanted.update(i for i in part.inputs if i is not None)
            parts.append(part)
    return replace(op, parts=tuple(reversed(parts)), results=(op.results[index],), types=(op.types[index],))
