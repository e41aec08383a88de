#!/usr/bin/env python3
"""How far an .onnx model's recorded outputs, and ours, are from float64's: what of a difference between them is rounding.

in_float64.py MODEL.onnx RECORD.npz   the record holds `in:NAME` and `out:NAME`, as those of ../shared/data/refs do

ONNX's own reference computes the model with every float made a double; only its convolutions are PyTorch's, as the
reference's take minutes. Distances are parts of the output's range.
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import onnx
import torch
from onnx import AttributeProto, TensorProto, numpy_helper
from onnx.reference import ReferenceEvaluator
from onnx.reference.op_run import OpRun

import circle_train as ct


class Conv(OpRun):
    """Convolution along one or two axes."""

    op_domain = ""

    def _run(self, x: Any, w: Any, b: Any = None, **options: Any) -> tuple[Any]:
        axes = range(x.ndim - 2)
        given = {name: value for name, value in options.items() if value is not None}
        strides, dilations = (given.get(name, [1 for _ in axes]) for name in ("strides", "dilations"))
        pads, auto_pad = given.get("pads", [0] * 2 * len(axes)), given.get("auto_pad")
        if auto_pad in ("SAME_UPPER", "SAME_LOWER"):
            reach = [(w.shape[2 + i] - 1) * dilations[i] + 1 for i in axes]
            steps = [-(-x.shape[2 + i] // strides[i]) for i in axes]
            sums = [max((steps[i] - 1) * strides[i] + reach[i] - x.shape[2 + i], 0) for i in axes]
            less, more = [s // 2 for s in sums], [s - s // 2 for s in sums]
            pads = less + more if auto_pad == "SAME_UPPER" else more + less
        around = [pads[side * len(axes) + i] for i in reversed(axes) for side in (0, 1)]
        padded = torch.nn.functional.pad(torch.tensor(x), around)
        convolve = (torch.conv1d, torch.conv2d)[len(axes) - 1]
        bias = None if b is None else torch.tensor(b)
        made = convolve(padded, torch.tensor(w), bias, strides, 0, dilations, given.get("group", 1))
        return (made.numpy(),)


def widened(path: str) -> onnx.ModelProto:
    """The model with doubles where it has floats."""
    model = onnx.load(path)
    attributes = [a for node in model.graph.node for a in node.attribute]
    held = [a.t for a in attributes if a.type == AttributeProto.TENSOR]
    for tensor in [*model.graph.initializer, *held]:
        if tensor.data_type == TensorProto.FLOAT:
            wide = numpy_helper.to_array(tensor).astype(np.float64)
            tensor.CopyFrom(numpy_helper.from_array(wide, tensor.name))
    for node in model.graph.node:
        for attribute in node.attribute:
            if node.op_type == "Cast" and attribute.name == "to" and attribute.i == TensorProto.FLOAT:
                attribute.i = TensorProto.DOUBLE
    for value in [*model.graph.input, *model.graph.output]:
        if value.type.tensor_type.elem_type == TensorProto.FLOAT:
            value.type.tensor_type.elem_type = TensorProto.DOUBLE
    del model.graph.value_info[:]
    return model


def main(path: str, record: str) -> None:
    recorded = np.load(record)
    feeds = {name[3:]: recorded[name] for name in recorded.files if name.startswith("in:")}
    wide: dict[str, Any] = {
        name: value.astype(np.float64) if value.dtype.kind == "f" else value for name, value in feeds.items()
    }
    proto, model = widened(path), ct.load(path)
    exact = ReferenceEvaluator(proto, new_ops=[Conv]).run(None, wide)
    ours = {
        engine: ct.InferenceSession(model, backend=engine).run(None, feeds)
        for engine in ("native", "reference")
    }
    names = [info.name for info in model.outputs]
    for output, value in zip(proto.graph.output, exact, strict=True):
        found = {"recorded": recorded[f"out:{output.name}"]}
        found |= {engine: made[names.index(output.name)] for engine, made in ours.items()}
        range_ = np.abs(value).max()
        print(output.name, *(f"{who} {np.abs(value - one).max() / range_:.1e}" for who, one in found.items()))


if __name__ == "__main__":
    main(*sys.argv[1:])
