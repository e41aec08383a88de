"""ONNX nodes that Circle's operators do not express, or only once values are known that are computed while running."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from circle_train.convert.building.builder import Builder
from circle_train.convert.building.refusal import Refusal
from circle_train.convert.building.registry import Bundle, Call, Result, handler_for
from circle_train.convert.onnx_file.elements import element_type
from circle_train.errors import UnsupportedOpError
from circle_train.ir import Tensor, TensorType
from circle_train.ir.tensor_type import Array
from circle_train.ops.control.subgraph import run_graph
from circle_train.ops.foreign.operator import CONVERTED, FUNCTIONS, Attributes, Foreign, computes, first

REDUCTIONS = (
    "ReduceL1", "ReduceL2", "ReduceLogSum", "ReduceLogSumExp", "ReduceMax", "ReduceMean", "ReduceMin", "ReduceProd",
    "ReduceSum", "ReduceSumSquare",
)  # fmt: skip
OVER_IMAGES = (
    "AveragePool",
    "MaxPool",
    "LpPool",
    "ConvTranspose",
    "GridSample",
    "DepthToSpace",
    "SpaceToDepth",
)
Ranks = Callable[[Call], int | None]
RANKS: dict[str, Ranks] = {
    **dict.fromkeys(
        ("Resize", "Upsample", "Slice", "Pad", "CumProd", "CumSum", "DFT", "Tile", "Expand", "Trilu"),
        lambda c: c[0].type.rank,
    ),
    **dict.fromkeys(OVER_IMAGES, lambda c: c[0].type.rank if c.output_count == 1 else None),
    **dict.fromkeys(REDUCTIONS, lambda c: c[0].type.rank if c.attr("keepdims", 1) else None),
    "STFT": lambda c: 4,
}
"""By operator whose handler wants values or sizes: the rank of its result, where that follows from the node."""


def as_foreign(c: Call) -> Result | None:
    """The node as an operator of ours; None where nothing computes it."""
    inputs = [c.b.at_run_time(tensor) for tensor in c.inputs]
    if any(isinstance(tensor, Bundle) for tensor in inputs):
        return None
    op = _known(c) or _converted_late(c)
    if op is None:
        return None
    return c.b.emit_unfolded_op(op, inputs)


def _known(c: Call) -> Foreign | None:
    """An operator that numpy computes."""
    if c.op not in FUNCTIONS or c.op == CONVERTED:
        return None
    attributes = dict(c.attributes)
    if c.op == "BitCast":
        found = element_type(int(c.required("to")))
        if found is None:
            return None
        given = c[0].type.dtype
        widths = [dtype.numpy.itemsize if dtype.numpy else 0 for dtype in (given, found)]
        if widths[0] != widths[1]:
            raise Refusal(f"it casts bits of {given.name} to {found.name}, expected a type of the same width")
        attributes["to"] = found.name
    return Foreign.of(c.op, attributes) if _is_text(attributes) else None


def _converted_late(c: Call) -> Foreign | None:
    """An operator that is converted anew in every run, when its inputs are known, or the size of the first."""
    unknown = [t for t in c.inputs[1:] if t is not None and c.b.known(t) is None]
    if c.op not in RANKS or not (unknown or not c[0].type.is_static) or not _is_text(c.attributes):
        return None
    declared = c.declared_shape()
    rank = len(declared) if declared is not None else RANKS[c.op](c)
    if rank is None:
        return None
    return Foreign.of(c.op, c.attributes, converted=True, opset=c.opset, rank=rank)


def _is_text(attributes: Attributes) -> bool:
    try:
        json.dumps(attributes, default=lambda value: value.tolist())
    except (TypeError, ValueError, AttributeError):
        return False
    return True


def _types(xs: Sequence[TensorType | None], facts: dict[str, Any]) -> list[TensorType]:
    return [TensorType(first(xs).dtype, (-1,) * int(facts["rank"]))]


@computes(CONVERTED, _types)
def convert_and_run(xs: Sequence[Array | None], facts: dict[str, Any]) -> list[Array]:
    """What the node's handler makes of inputs that are all known."""
    b = Builder()
    data = np.asarray(xs[0])
    given = Tensor("x", TensorType.of(data))
    b.graph.inputs = [given]
    rest: list[Tensor | None] = [None if x is None else b.constant(x) for x in xs[1:]]
    handler = handler_for("", facts["operator"], int(facts["opset"]))
    assert handler is not None
    try:
        made = handler(Call(facts["operator"], b, [given, *rest], facts["attributes"], int(facts["opset"])))
    except Refusal as refusal:
        raise UnsupportedOpError(
            f"ONNX's {facts['operator']}: {refusal}; give other values, or fix them in the model"
        ) from None
    results = [made] if isinstance(made, Tensor) else list(made)
    b.graph.outputs = results
    return run_graph(b.graph, [data])
