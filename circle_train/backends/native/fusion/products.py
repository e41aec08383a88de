"""What goes with a matrix product or a convolution: additions and activations around it."""

from __future__ import annotations

from circle_train.backends.native.engine.abi import Act
from circle_train.backends.native.fusion.rewriter import Rewriter
from circle_train.ir import DType, Node, Tensor
from circle_train.ops.attributes import Activation
from circle_train.ops.base import Op
from circle_train.ops.internal.bfloat16 import RoundedConv2D, RoundedFullyConnected
from circle_train.ops.internal.gradient import ActivationGradient, Gradient
from circle_train.ops.internal.padded import PADDED
from circle_train.ops.internal.swish import Swish
from circle_train.ops.layers.conv import Conv2D, DepthwiseConv2D
from circle_train.ops.layers.linear import FullyConnected
from circle_train.ops.numeric import activation
from circle_train.ops.numeric.arithmetic import Add
from circle_train.record import record

KERNELS: dict[type[Op], str] = {
    Conv2D: "convolution",
    DepthwiseConv2D: "convolution",
    FullyConnected: "fully_connected",
    RoundedConv2D: "convolution",
    **dict.fromkeys(PADDED.values(), "convolution"),
    RoundedFullyConnected: "fully_connected",
}
ACTIVATIONS: dict[type[Op], Activation] = {
    activation.Relu: Activation.RELU,
    activation.Relu6: Activation.RELU6,
    activation.ReluN1To1: Activation.RELU_N1_TO_1,
    activation.Tanh: Activation.TANH,
}
"""Those whose gradients are seen from their output."""
BEHIND: dict[type[Op], Activation | Act] = {
    **ACTIVATIONS,
    activation.HardSwish: Act.HARD_SWISH,
    Swish: Act.SWISH,
}
"""Those that go with a product: where nobody else reads its sums."""


@record
class ProductOptions:
    """The op whose product it is, and the activation: after the sum, or (gradients) the one to undo."""

    op: Op
    act: Activation | Act


def extend_forward(rewriter: Rewriter) -> None:
    """y = act(product + b + add): an ADD and an activation that follow a product."""
    for node in reversed(rewriter.nodes()):
        kernel = KERNELS.get(type(node.op))
        if kernel is None or node.op.activation or not _float32(node) or node not in rewriter:
            continue
        members, add, out = [node], None, node.outputs[0]
        act: Activation | Act = Activation.NONE
        reader = rewriter.only_reader(out)
        if reader is not None and type(reader.op) is Add:
            add = _other(reader, out)
            if add is not None:
                members.append(reader)
                act, out = reader.op.activation, reader.outputs[0]
                reader = rewriter.only_reader(out) if not act else None
        if reader is not None and reader not in members and type(reader.op) in BEHIND:
            members.append(reader)
            act, out = BEHIND[type(reader.op)], reader.outputs[0]
        if len(members) > 1 and act is not Activation.SIGN_BIT:
            x, w, b = node.op.pad(node.inputs)
            roles = {"x": x, "w": w, "b": b, "add": add}
            rewriter.fuse(members, kernel, roles, [out], ProductOptions(node.op, act))


def extend_input_gradients(rewriter: Rewriter) -> None:
    """dx = act'(x) · (gradient of a product + what came from elsewhere)."""
    for node in rewriter.nodes():
        op = node.op
        if node not in rewriter or not isinstance(op, Gradient) or type(op.of) not in KERNELS:
            continue
        if op.of.input_name(op.wrt) != "x" or not _float32(node):
            continue
        members, add, mask, act, out = [node], None, None, Activation.NONE, node.outputs[0]
        reader = rewriter.only_reader(out)
        if reader is not None and type(reader.op) is Add and not reader.op.activation:
            add = _other(reader, out)
            if add is not None:
                members.append(reader)
                out = reader.outputs[0]
                reader = rewriter.only_reader(out)
        if reader is not None and isinstance(reader.op, ActivationGradient) and reader.inputs[0] is out:
            mask, act, out = reader.inputs[1], reader.op.kind, reader.outputs[0]
            members.append(reader)
        if len(members) > 1 and act is not Activation.SIGN_BIT:
            named = dict(zip((name for name, _ in op.counts), node.inputs, strict=True))
            roles = {"dy": named["dy"], "w": named["w"], "add": add, "mask": mask}
            kernel = KERNELS[type(op.of)] + "_x"
            free = [add] if add is not None and kernel == "convolution_x" else []
            rewriter.fuse(members, kernel, roles, [out], ProductOptions(op.of, act), free)


def _other(reader: Node, operand: Tensor) -> Tensor | None:
    """The other operand of an ADD of two tensors of one shape."""
    x1, x2 = reader.inputs
    other = x2 if x1 is operand else x1
    return other if other is not None and other is not operand and other.shape == operand.shape else None


def _float32(node: Node) -> bool:
    return all(t is None or t.dtype is DType.FLOAT32 for t in (*node.inputs, *node.outputs))
