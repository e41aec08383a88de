"""Activation functions: Circle's own where there is one, else their formula."""

from __future__ import annotations

from circle_train.convert.building.builder import Builder
from circle_train.convert.building.refusal import Refusal
from circle_train.convert.building.registry import Call, handles
from circle_train.ir import Tensor


def _float(c: Call) -> Tensor:
    if not c.dtype.is_float:
        raise Refusal(f"its input is {c.dtype.name}, Circle's activations take floats")
    return c[0]


@handles("Relu")
def relu(c: Call) -> Tensor:
    if not c.dtype.is_float:
        return c.b("MAXIMUM", c[0], c.b.like(c[0], 0))
    return c.b("RELU", c[0])


@handles("Sigmoid")
def sigmoid(c: Call) -> Tensor:
    return c.b("LOGISTIC", _float(c))


@handles("Tanh")
def tanh(c: Call) -> Tensor:
    return c.b("TANH", _float(c))


@handles("LeakyRelu")
def leaky_relu(c: Call) -> Tensor:
    return c.b("LEAKY_RELU", _float(c), alpha=c.attr("alpha", 0.01))


@handles("HardSwish")
def hard_swish(c: Call) -> Tensor:
    return c.b("HARD_SWISH", _float(c))


@handles("HardSigmoid")
def hard_sigmoid(c: Call) -> Tensor:
    b, x = c.b, _float(c)
    line = b("ADD", b("MUL", x, b.like(x, c.attr("alpha", 0.2))), b.like(x, c.attr("beta", 0.5)))
    return clipped(b, line, 0.0, 1.0)


@handles("Gelu", since=20)
@handles("Gelu", domain="com.microsoft")
def gelu(c: Call) -> Tensor:
    return c.b("GELU", _float(c), approximate=c.attr("approximate", "none") == "tanh")


@handles("BiasGelu", domain="com.microsoft")
def bias_gelu(c: Call) -> Tensor:
    return c.b("GELU", c.b("ADD", c[0], c[1]), approximate=False)


@handles("FastGelu", domain="com.microsoft")
def fast_gelu(c: Call) -> Tensor:
    bias = c.optional(1)
    return c.b("GELU", c[0] if bias is None else c.b("ADD", c[0], bias), approximate=True)


@handles("Elu")
def elu(c: Call) -> Tensor:
    return scaled_elu(c.b, _float(c), c.attr("alpha", 1.0), 1.0)


@handles("Selu")
def selu(c: Call) -> Tensor:
    alpha, gamma = c.attr("alpha", 1.67326319217681884765625), c.attr("gamma", 1.05070102214813232421875)
    return c.b("MUL", scaled_elu(c.b, _float(c), alpha, 1.0), c.b.like(c[0], gamma))


@handles("Celu")
def celu(c: Call) -> Tensor:
    alpha = c.attr("alpha", 1.0)
    return scaled_elu(c.b, _float(c), alpha, alpha)


def scaled_elu(b: Builder, x: Tensor, alpha: float, width: float) -> Tensor:
    """x above zero, alpha·(exp(x / width) - 1) below."""
    if alpha == 1.0 and width == 1.0:
        return b("ELU", x)
    below = b("MINIMUM", x, b.like(x, 0))
    if width != 1.0:
        below = b("DIV", below, b.like(x, width))
    return b("ADD", b("RELU", x), b("MUL", b("ELU", below), b.like(x, alpha)))


@handles("Softplus")
def softplus_node(c: Call) -> Tensor:
    return softplus(c.b, _float(c))


def softplus(b: Builder, x: Tensor) -> Tensor:
    """log(1 + exp(x)), which must not overflow."""
    tail = b("LOG", b("ADD", b("EXP", b("NEG", b("ABS", x))), b.like(x, 1)))
    return b("ADD", b("RELU", x), tail)


@handles("Softsign")
def softsign(c: Call) -> Tensor:
    x = _float(c)
    return c.b("DIV", x, c.b("ADD", c.b("ABS", x), c.b.like(x, 1)))


@handles("Mish")
def mish(c: Call) -> Tensor:
    return c.b("MUL", c[0], c.b("TANH", softplus(c.b, _float(c))))


@handles("Swish")
def swish(c: Call) -> Tensor:
    return scaled_swish(c.b, _float(c), c.attr("alpha", 1.0))


@handles("QuickGelu", domain="com.microsoft")
def quick_gelu(c: Call) -> Tensor:
    return scaled_swish(c.b, _float(c), c.attr("alpha", 1.702))


def scaled_swish(b: Builder, x: Tensor, alpha: float) -> Tensor:
    """x · sigmoid(alpha · x)."""
    inner = x if alpha == 1.0 else b("MUL", x, b.like(x, alpha))
    return b("MUL", x, b("LOGISTIC", inner))


@handles("ThresholdedRelu")
def thresholded_relu(c: Call) -> Tensor:
    b, x = c.b, _float(c)
    return b("SELECT_V2", b("GREATER", x, b.like(x, c.attr("alpha", 1.0))), x, b.like(x, 0))


@handles("Shrink")
def shrink(c: Call) -> Tensor:
    b, x = c.b, c[0]
    bias, limit = c.attr("bias", 0.0), c.attr("lambd", 0.5)
    inner = b("SELECT_V2", b("LESS", x, b.like(x, -limit)), b("ADD", x, b.like(x, bias)), b.like(x, 0))
    return b("SELECT_V2", b("GREATER", x, b.like(x, limit)), b("SUB", x, b.like(x, bias)), inner)


@handles("PRelu")
def prelu(c: Call) -> Tensor:
    b, x, slope = c.b, _float(c), c[1]
    rank = x.type.rank
    if c.opset < 7 and slope.type.rank == 1 and slope.type.size > 1:
        slope = b.reshape(slope, (slope.shape[0], *(1,) * (rank - 2)))
    if rank > 2 and b.shape(slope) == (c.shape()[1], *(1,) * (rank - 2)):
        channels = b.reshape(slope, (*(1,) * (rank - 2), c.shape()[1]))
        return b.channels_first(b("PRELU", b.channels_last(x), channels))
    return b("PRELU", x, slope)


@handles("Clip", since=1)
def clip_attributes(c: Call) -> Tensor:
    return clipped(c.b, c[0], c.attr("min"), c.attr("max"))


@handles("Clip", since=11)
def clip(c: Call) -> Tensor:
    bounds = [c.optional(1), c.optional(2)]
    values = [c.b.value(bound) for bound in bounds]
    if all(bound is None or value is not None for bound, value in zip(bounds, values, strict=True)):
        low, high = (None if value is None else value.reshape(()).item() for value in values)
        return clipped(c.b, c[0], low, high)
    result = c[0]
    for name, bound in zip(("MAXIMUM", "MINIMUM"), bounds, strict=True):
        result = result if bound is None else c.b(name, result, bound)
    return result


def clipped(b: Builder, x: Tensor, low: float | None, high: float | None) -> Tensor:
    """x limited to an interval, by one operator where Circle has it."""
    single: dict[tuple[float | None, float | None], str] = {
        (0.0, 6.0): "RELU6",
        (-1.0, 1.0): "RELU_N1_TO_1",
        (0.0, 1.0): "RELU_0_TO_1",
        (0.0, None): "RELU",
    }
    if x.dtype.is_float and (low, high) in single:
        return b(single[low, high], x)
    dtype = x.dtype.numpy
    if low is not None and low > -float("inf"):
        x = b("MAXIMUM", x, b.constant(low, dtype))
    if high is not None and high < float("inf"):
        x = b("MINIMUM", x, b.constant(high, dtype))
    return x


@handles("Softmax", "LogSoftmax", since=1)
def softmax_flat(c: Call) -> Tensor:
    """Before opset 13: over all axes from `axis` on."""
    b, x, shape = c.b, _float(c), c.shape()
    axis = c.axis(1)
    if axis == len(shape) - 1:
        return b(_softmax_name(c), x)
    flat = 1
    for size in shape[axis:]:
        flat = flat * size
    return b.reshape(b(_softmax_name(c), b.reshape(x, (*shape[:axis], flat))), shape)


@handles("Softmax", "LogSoftmax", since=13)
def softmax(c: Call) -> Tensor:
    b, x, axis = c.b, _float(c), c.axis(-1)
    order = [i for i in range(c.rank()) if i != axis] + [axis]
    last = b(_softmax_name(c), b.transpose(x, order))
    return b.transpose(last, inverse(order))


def _softmax_name(c: Call) -> str:
    return "SOFTMAX" if c.op == "Softmax" else "LOG_SOFTMAX"


def inverse(order: list[int]) -> list[int]:
    """The permutation that undoes one."""
    return [order.index(axis) for axis in range(len(order))]


@handles("Hardmax", since=1)
def hardmax_flat(c: Call) -> Tensor:
    b, shape, axis = c.b, c.shape(), c.axis(1)
    rows = cols = 1
    for index, size in enumerate(shape):
        rows, cols = (rows * size, cols) if index < axis else (rows, cols * size)
    return b.reshape(_one_at_maximum(b, b.reshape(c[0], (rows, cols)), 1), shape)


@handles("Hardmax", since=13)
def hardmax(c: Call) -> Tensor:
    return _one_at_maximum(c.b, c[0], c.axis(-1))


def _one_at_maximum(b: Builder, x: Tensor, axis: int) -> Tensor:
    first = b("ARG_MAX", x, b.constant(axis, "int32"))
    depth = b.reshape(b.integers([b.shape(x)[axis]]), ())
    return b("ONE_HOT", first, depth, b.like(x, 1), b.like(x, 0), axis=axis)
