"""Zeros around an image as padding of the convolution that alone reads them: to kernels that is the same, nothing is copied."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

from circle_train.backends.native.fusion.attention.transposes import is_transpose
from circle_train.backends.native.fusion.rewriter import Rewriter
from circle_train.ir import DType, Node, Tensor
from circle_train.ir.graph import constant
from circle_train.ir.tensor_type import TensorType
from circle_train.ops.attributes import Padding
from circle_train.ops.internal.gradient import Gradient
from circle_train.ops.internal.padded import PADDED, PaddedConvolution
from circle_train.ops.shapes.pad import Pad

Around = tuple[int, int, int, int]
"""Zeros at the top, bottom, left and right."""


def absorb_pads(rewriter: Rewriter) -> None:
    """A PAD, the convolution behind it, and the gradients of both."""
    for node in rewriter.nodes():
        _turn_first(rewriter, node)
    gradients: dict[int, list[Node]] = {}
    for node in rewriter.nodes():
        if isinstance(node.op, Gradient):
            gradients.setdefault(id(node.op.of), []).append(node)
    for node in rewriter.nodes():
        around = _around(node)
        if around is None or node.outputs[0] in rewriter.keep:
            continue
        readers = rewriter.readers(node.outputs[0])
        convs = [r for r in readers if type(r.op) in PADDED]
        if len(convs) == 1 and _is_plain(convs[0], node.outputs[0]) and rewriter.joins([node, convs[0]]):
            back = gradients.get(id(convs[0].op), [])
            if {*readers} <= {convs[0], *back} and all(_is_known(rewriter, g, node) for g in back):
                _absorb(rewriter, node, convs[0], back, around)


def _turn_first(rewriter: Rewriter, pad: Node) -> None:
    """A PAD that only a TRANSPOSE reads goes behind it, where a convolution may be."""
    turn = rewriter.only_reader(pad.outputs[0]) if type(pad.op) is Pad else None
    if turn is None or not is_transpose(turn) or isinstance(turn.op, Gradient):
        return
    (x, paddings), order = pad.inputs, turn.inputs[1]
    if (
        x is None
        or paddings is None
        or order is None
        or not paddings.is_constant
        or paddings.state is not None
    ):
        return
    axes = order.data.tolist()
    turned = Tensor(f"turned({x.name})", TensorType(x.dtype, tuple([x.shape[axis] for axis in axes])))
    around = constant(paddings.data[axes], f"turned({paddings.name})")
    first = Node(turn.op, [x, order], [turned], turn.index, [*turn.originals])
    rewriter.replace(
        [pad, turn], first, Node(pad.op, [turned, around], list(turn.outputs), pad.index, [*pad.originals])
    )


def _around(node: Node) -> Around | None:
    """Top, bottom, left and right of a PAD of images."""
    if (
        type(node.op) is not Pad
        or node.outputs[0].dtype is not DType.FLOAT32
        or len(node.outputs[0].shape) != 4
    ):
        return None
    paddings = node.inputs[1]
    if paddings is None or not paddings.is_constant or paddings.state is not None:
        return None
    first, rows, columns, last = paddings.data.tolist()
    return None if any(first) or any(last) else (*rows, *columns)


def _is_plain(conv: Node, image: Tensor) -> bool:
    """Whether the image is what is convolved, by more than one cell, without a padding of its own."""
    x, w, *_ = conv.inputs
    assert w is not None
    return conv.op.padding is Padding.VALID and x is image and w is not image and w.shape[1:3] != (1, 1)


def _is_known(rewriter: Rewriter, gradient: Node, pad: Node) -> bool:
    """Whether a gradient of the convolution, where it is that of the image, goes back through the PAD alone."""
    if gradient.op.of.input_name(gradient.op.wrt) != "x":
        return True
    reader = rewriter.only_reader(gradient.outputs[0])
    if reader is None or not isinstance(reader.op, Gradient) or type(reader.op.of) is not Pad:
        return False
    return rewriter.joins([gradient, reader])


def _absorb(rewriter: Rewriter, pad: Node, conv: Node, back: list[Node], around: Around) -> None:
    image, x, old = pad.outputs[0], pad.inputs[0], conv.op
    assert x is not None
    made = PADDED[type(old)](**{f.name: getattr(old, f.name) for f in fields(old)}, around=around)
    whole = Node(
        made, [x, *conv.inputs[1:]], list(conv.outputs), conv.index, [*pad.originals, *conv.originals]
    )
    rewriter.replace([pad, conv], whole)
    for gradient in back:
        inputs = [x if t is image else t for t in gradient.inputs]
        if made.input_name(gradient.op.wrt) == "x":
            _send_back(rewriter, gradient, made, x)
            continue
        op = replace(gradient.op, of=made)
        rewriter.replace([gradient], Node(op, inputs, list(gradient.outputs), members=[*gradient.originals]))


def _send_back(rewriter: Rewriter, gradient: Node, made: PaddedConvolution, x: Tensor) -> None:
    inner = rewriter.only_reader(gradient.outputs[0])
    assert inner is not None
    shapes: dict[str, Any] = {**gradient.op.shapes, "x_shape": x.shape}
    op = replace(gradient.op, of=made, type=x.type, shapes=shapes)
    members = [*gradient.originals, *inner.originals]
    rewriter.replace([gradient, inner], Node(op, list(gradient.inputs), list(inner.outputs), members=members))
