"""Bfloat16 activations: rounding, narrowing, widening are formulas of the chain kernel; products know the rest by flags."""

from __future__ import annotations

from circle_train.backends.native.binding import OPS
from circle_train.backends.native.codes import ChainOp
from circle_train.backends.native.elementwise import FORMULAS, elementwise
from circle_train.ops.bfloat16 import Narrow, RoundToBfloat16, Widen

FORMULAS[RoundToBfloat16] = lambda b, op, x: b.emit(ChainOp.ROUND_BF16, x)
FORMULAS[Narrow] = FORMULAS[Widen] = lambda b, op, x: b.emit(ChainOp.COPY, x)
OPS.update(dict.fromkeys((RoundToBfloat16, Narrow, Widen), elementwise))
