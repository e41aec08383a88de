"""Rounding to a few bits, as Brevitas and QONNX write it."""

from __future__ import annotations

import numpy as np

from circle_train.convert.building.refusal import Refusal
from circle_train.convert.building.registry import Call, handles
from circle_train.ir import Tensor

QONNX = ("qonnx.custom_op.general", "onnx.brevitas", "finn.custom_op.general")
ROUNDINGS = {"ROUND": "ROUND", "CEIL": "CEIL", "FLOOR": "FLOOR"}


def quant(c: Call) -> Tensor:
    """(round(x / scale + zero) within so many bits - zero) · scale."""
    b, x = c.b, c[0]
    bits = c.b.value(c[3])
    mode = str(c.attr("rounding_mode", "ROUND")).upper()
    if bits is None or bits.size != 1 or mode not in ROUNDINGS:
        raise Refusal(f"it rounds by {mode} to a number of bits that is one constant, or computed")
    width, is_signed, is_narrow = float(bits.reshape(())), c.attr("signed", 1), c.attr("narrow", 0)
    low = -(2 ** (width - 1)) + is_narrow if is_signed else 0.0
    high = 2 ** (width - 1) - 1 if is_signed else 2**width - 1 - is_narrow
    zero = b.value(c[2])
    is_centred = zero is not None and not zero.any()
    steps = b("DIV", x, c[1])
    steps = steps if is_centred else b("ADD", steps, c[2])
    held = b("MINIMUM", b("MAXIMUM", steps, b.like(x, np.float32(low))), b.like(x, np.float32(high)))
    whole = b(ROUNDINGS[mode], held)
    return b("MUL", whole if is_centred else b("SUB", whole, c[2]), c[1])


for _domain in QONNX:
    handles("Quant", domain=_domain)(quant)
