"""Formulas that files spell out in many operators, recognised before differentiation."""

from __future__ import annotations

from collections.abc import Callable

from circle_train.backends.native.fusion.rewriter import Rewriter
from circle_train.ir import DType, Node, Tensor
from circle_train.ops.attributes import Activation
from circle_train.ops.base import Op
from circle_train.ops.internal.gather_from_end import GatherFromEnd
from circle_train.ops.internal.norms.layer_norm import LayerNorm
from circle_train.ops.internal.swish import Swish
from circle_train.ops.numeric.activation import Logistic, Relu, Relu6, ReluN1To1, Softmax, Tanh
from circle_train.ops.numeric.arithmetic import Add, Div, Mul, SquaredDifference, Sub
from circle_train.ops.numeric.logic import Less
from circle_train.ops.numeric.reduce import Mean
from circle_train.ops.numeric.select import SelectV2
from circle_train.ops.numeric.unary import Rsqrt, Sqrt, Square
from circle_train.ops.shapes.index import Gather

STANDING: dict[Activation, type[Op] | None] = {
    Activation.NONE: None,
    Activation.RELU: Relu,
    Activation.RELU6: Relu6,
    Activation.RELU_N1_TO_1: ReluN1To1,
    Activation.TANH: Tanh,
}
"""What a fused activation is where it stands alone."""


def recognise_layer_norm(rewriter: Rewriter) -> None:
    """(x - mean) · 1/√(mean((x - mean)²) + ε) · gamma + beta along the last axis."""
    for node in rewriter.nodes():
        if node in rewriter and type(node.op) is Add and node.op.activation in STANDING:
            _layer_norm(rewriter, node)


def _layer_norm(rewriter: Rewriter, last: Node) -> None:
    scaled, beta = _maker(rewriter, last, Mul)
    if scaled is None or beta is None:
        return
    normal, gamma = _operand(rewriter, scaled, Mul, Div)
    if normal is None or gamma is None or type(scaled.op) is not Mul:
        return
    found = _normalised(rewriter, normal)
    if found is None:
        return
    x, epsilon, members = found
    cols = x.shape[-1] if x.shape else 0
    if gamma.shape != (cols,) or beta.shape != (cols,) or x.dtype is not DType.FLOAT32:
        return
    if not _closed(rewriter, [*members, normal, scaled], last):
        return
    behind = STANDING[last.op.activation]
    out = last.outputs[0] if behind is None else Tensor(f"norm({last.outputs[0].name})", last.outputs[0].type)
    made = [Node(LayerNorm(epsilon), [x, gamma, beta], [out], last.index, [*members, normal, scaled, last])]
    if behind is not None:
        made.append(Node(behind(), [out], list(last.outputs), last.index, [last]))
    rewriter.replace([*members, normal, scaled, last], *made)


def _normalised(rewriter: Rewriter, normal: Node) -> tuple[Tensor, float, list[Node]] | None:
    """Match (x - mean) times 1/√ or over √ of the variance: x, ε and the nodes before `normal`."""
    centred, other = _operand(rewriter, normal, Sub)
    root = rewriter.producer(other)
    wanted: type[Op] = Rsqrt if type(normal.op) is Mul else Sqrt
    if centred is None or root is None or type(root.op) is not wanted:
        return None
    shifted = rewriter.producer(root.inputs[0])
    if shifted is None or type(shifted.op) is not Add:
        return None
    variance, epsilon = _operand(rewriter, shifted, Mean)
    if (
        variance is None
        or epsilon is None
        or not epsilon.is_constant
        or epsilon.type.size != 1
        or epsilon.state
    ):
        return None
    x, mean_tensor = centred.inputs
    mean, squares = rewriter.producer(mean_tensor), rewriter.producer(variance.inputs[0])
    if (
        x is None
        or mean is None
        or squares is None
        or not _is_row_mean(mean, x)
        or not _is_row_mean(variance, x)
    ):
        return None
    plain = {*squares.inputs} == {centred.outputs[0]} and _squares(squares)
    difference = type(squares.op) is SquaredDifference and set(squares.inputs) == {x, mean_tensor}
    if mean.inputs[0] is not x or not (plain or difference):
        return None
    value = float(epsilon.data.reshape(-1)[0])
    return x, value, [mean, centred, squares, variance, shifted, root]


def _squares(node: Node) -> bool:
    """Whether its one operand is squared, be it as a product with itself."""
    return type(node.op) is Square or (type(node.op) is Mul and not node.op.activation)


def _operand(rewriter: Rewriter, node: Node, *kinds: type[Op]) -> tuple[Node | None, Tensor | None]:
    """The node among the two operands' makers that is of these kinds, and the other operand; nothing is done to the result."""
    return (None, None) if getattr(node.op, "activation", 0) else _maker(rewriter, node, *kinds)


def _maker(rewriter: Rewriter, node: Node, *kinds: type[Op]) -> tuple[Node | None, Tensor | None]:
    if len(node.inputs) != 2:
        return None, None
    for index in (0, 1):
        maker = rewriter.producer(node.inputs[index])
        if maker is not None and type(maker.op) in kinds and not maker.op.activation:
            return maker, node.inputs[1 - index]
    return None, None


def _is_row_mean(node: Node, x: Tensor) -> bool:
    if (
        type(node.op) is not Mean
        or not node.op.keep_dims
        or node.inputs[1] is None
        or not node.inputs[1].is_constant
    ):
        return False
    axes = {int(i) % len(x.shape) for i in node.inputs[1].data.reshape(-1)}
    return axes == {len(x.shape) - 1}


def _closed(rewriter: Rewriter, inner: list[Node], last: Node) -> bool:
    """Whether nobody else reads what the inner nodes make."""
    group = {*inner, last}
    tensors = [t for node in inner for t in node.outputs]
    return all(t not in rewriter.keep and set(rewriter.readers(t)) <= group for t in tensors)


def scale_softmax(rewriter: Rewriter) -> None:
    """SOFTMAX of a product with a positive number is SOFTMAX with another beta."""
    for node in rewriter.nodes():
        if type(node.op) is not Softmax:
            continue
        maker = rewriter.producer(node.inputs[0])
        if maker is None or type(maker.op) is not Mul or maker.op.activation:
            continue
        x, factor = maker.inputs
        if factor is None or x is None or rewriter.only_reader(maker.outputs[0]) is not node:
            continue
        if (
            not factor.is_constant
            or factor.state
            or factor.type.size != 1
            or x.shape != node.outputs[0].shape
        ):
            continue
        value = float(factor.data.reshape(-1)[0])
        if value > 0:
            made = Node(Softmax(node.op.beta * value), [x], list(node.outputs), node.index)
            made.members = [maker, node]
            rewriter.replace([maker, node], made)


def gather_from_end(rewriter: Rewriter) -> None:
    """GATHER by SELECT(i < 0, i + rows, i)."""
    for node in rewriter.nodes():
        if type(node.op) is not Gather or node.op.batch_dims or node.inputs[0] is None:
            continue
        table, chosen = node.inputs
        choice = rewriter.producer(chosen)
        assert table is not None
        if choice is None or type(choice.op) is not SelectV2:
            continue
        less, plus, indices = (
            rewriter.producer(choice.inputs[0]),
            rewriter.producer(choice.inputs[1]),
            choice.inputs[2],
        )
        axis = node.op.axis % len(table.shape)
        if less is None or plus is None or type(less.op) is not Less or type(plus.op) is not Add:
            continue
        if _against(less, indices, 0) and _against(plus, indices, table.shape[axis]):
            made = Node(GatherFromEnd(axis), [table, indices], list(node.outputs), node.index, [node])
            rewriter.replace([node], made)
            rewriter.drop([choice])
            rewriter.drop([less, plus])


def _against(node: Node, indices: Tensor | None, number: int) -> bool:
    """Whether the node's operands are the indices and this constant."""
    first, second = node.inputs
    constant = second if first is indices else None
    return (
        constant is not None
        and constant.is_constant
        and constant.type.size == 1
        and int(constant.data.reshape(-1)[0]) == number
    )


def recognise_swish(rewriter: Rewriter) -> None:
    """x · LOGISTIC(x)"""
    for node in rewriter.nodes():
        if type(node.op) is not Mul or node.op.activation or node.outputs[0].dtype is not DType.FLOAT32:
            continue
        gate, x = _operand(rewriter, node, Logistic)
        if gate is None or x is None or gate.inputs[0] is not x:
            continue
        if rewriter.only_reader(gate.outputs[0]) is node:
            made = Node(Swish(), [x], list(node.outputs), node.index, [gate, node])
            rewriter.replace([gate, node], made)


RECOGNISERS: tuple[Callable[[Rewriter], None], ...] = (
    recognise_layer_norm,
    scale_softmax,
    gather_from_end,
    recognise_swish,
)
