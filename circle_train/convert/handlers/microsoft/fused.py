"""What onnxruntime's optimizer joins: an operator and the function behind it."""

from __future__ import annotations

from dataclasses import replace

from circle_train.convert.building.builder import Builder
from circle_train.convert.building.refusal import Refusal
from circle_train.convert.building.registry import Call, handler_for, handles
from circle_train.convert.handlers.layers.conv import conv
from circle_train.convert.handlers.layers.norm import rms_normalization
from circle_train.convert.handlers.layers.recurrent import function
from circle_train.convert.handlers.numeric.activation import clipped
from circle_train.convert.handlers.numeric.linear import gemm, product, scaled
from circle_train.ir import Tensor

MICROSOFT = "com.microsoft"
NEWEST = 28


def standard(c: Call, name: str, opset: int = NEWEST) -> list[Tensor]:
    """What the standard's operator of that name makes of the same node."""
    handler = handler_for("", name, opset)
    assert handler is not None
    made = handler(replace(c, op=name, opset=opset))
    return [made] if isinstance(made, Tensor) else list(made)


@handles("Trilu", "QuantizeLinear", "DequantizeLinear", domain=MICROSOFT)
def as_in_the_standard(c: Call) -> list[Tensor]:
    return standard(c, c.op)


def activated(c: Call, y: Tensor) -> Tensor:
    """The function that the node names applied to its result."""
    name = c.attr("activation")
    values = [float(v) for v in c.attr("activation_params") or []]
    alpha = [float(c.attr(f"activation_{part}", 0.0)) for part in ("alpha", "beta")]
    values = values or alpha
    if not name:
        return y
    if name == "Clip":
        return clipped(c.b, y, values[0], values[1])
    if name == "HardSwish":
        return c.b("HARD_SWISH", y)
    return function(c.b, name, *values[:2])(y)


@handles("FusedConv", domain=MICROSOFT)
def fused_conv(c: Call) -> Tensor:
    """activation(conv(x) + z)."""
    made = conv(replace(c, op="Conv", inputs=list(c.inputs[:3])))
    y = made if isinstance(made, Tensor) else made[0]
    if (added := c.optional(3)) is not None:
        y = c.b("ADD", y, added)
    return activated(c, y)


@handles("FusedGemm", domain=MICROSOFT)
def fused_gemm(c: Call) -> Tensor:
    made = gemm(c)
    return activated(c, made if isinstance(made, Tensor) else made[0])


@handles("FusedMatMul", "TransposeMatMul", "FusedMatMulActivation", domain=MICROSOFT)
def fused_matmul(c: Call) -> Tensor:
    """activation(alpha · A' B')."""
    if c.attr("transBatchA", 0) or c.attr("transBatchB", 0):
        raise Refusal("it turns the batch axis of its operands")
    b = c.b
    x, w = (_turned(b, c[i]) if c.attr(name, 0) else c[i] for i, name in ((0, "transA"), (1, "transB")))
    return activated(c, scaled(b, product(b, x, w), float(c.attr("alpha", 1.0))))


def _turned(b: Builder, x: Tensor) -> Tensor:
    """The last two axes exchanged; a vector stays."""
    rank = x.type.rank
    return x if rank < 2 else b.transpose(x, [*range(rank - 2), rank - 1, rank - 2])


@handles("SkipSimplifiedLayerNormalization", domain=MICROSOFT)
def skip_rms_normalization(c: Call) -> list[Tensor]:
    """RMS norm of a sum, and the sum."""
    x = c.b("ADD", c[0], c[1])
    if (bias := c.optional(3)) is not None:
        x = c.b("ADD", x, bias)
    y = rms_normalization(replace(c, inputs=[x, c[2]]))
    if c.uses(1) or c.uses(2):
        raise Refusal("its outputs mean and deviation are used")
    return [y if isinstance(y, Tensor) else y[0], x, x, x][: c.output_count]
