"""A new classifier in the ONNX model itself, so that what is trained goes back into ONNX."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

from circle_train.convert.back.writeback import choose_outputs, source_of
from circle_train.convert.building.provenance import Provenance
from circle_train.errors import ConversionError

BEHIND = {
    "Softmax", "LogSoftmax", "Sigmoid", "Relu", "Reshape", "Flatten", "Squeeze", "Add", "Identity", "Cast", "Dropout",
    "GlobalAveragePool", "AveragePool", "ReduceMean", "QuantizeLinear", "DequantizeLinear",
}  # fmt: skip
"""What may stand between a classifier and the output."""
LAYERS = {"Gemm", "MatMul", "Conv"}
LAST = {"softmax": "Softmax", "sigmoid": "Sigmoid"}


def with_head(provenance: Provenance, outputs: int, scores: str) -> bytes:
    """The ONNX model that was loaded, ending in a new layer of so many outputs on what the old classifier reads."""
    model = onnx.ModelProto.FromString(bytes(source_of(provenance)))
    features, count, rank = _features(model)
    model = onnx.ModelProto.FromString(choose_outputs(model.SerializeToString(), [features]))
    graph = model.graph
    nodes: list[Any] = []
    rows = features
    if rank == 4:
        nodes.append(helper.make_node("GlobalAveragePool", [rows], ["head/pooled"]))
        rows = "head/pooled"
    if rank > 2:
        nodes.append(helper.make_node("Flatten", [rows], ["head/rows"], axis=1))
        rows = "head/rows"
    last = "scores" if scores in LAST else "values"
    logits = "head/logits" if scores in LAST else last
    nodes.append(helper.make_node("Gemm", [rows, "head/weights", "head/bias"], [logits], transB=1))
    if scores in LAST:
        attributes: dict[str, Any] = {"axis": 1} if scores == "softmax" else {}
        nodes.append(helper.make_node(LAST[scores], [logits], [last], **attributes))
    graph.node.extend(nodes)
    graph.initializer.append(numpy_helper.from_array(np.zeros((outputs, count), np.float32), "head/weights"))
    graph.initializer.append(numpy_helper.from_array(np.zeros(outputs, np.float32), "head/bias"))
    del graph.output[:]
    graph.output.append(helper.make_tensor_value_info(last, onnx.TensorProto.FLOAT, ["batch", outputs]))
    return bytes(model.SerializeToString())


def _features(model: Any) -> tuple[str, int, int]:
    """What the classifier reads, how many numbers a row of it has, and its rank."""
    weights = {tensor.name: list(tensor.dims) for tensor in model.graph.initializer}
    inferred = onnx.shape_inference.infer_shapes(model).graph
    known = {info.name: info for info in (*inferred.input, *inferred.value_info, *inferred.output)}
    for output in model.graph.output:
        for node in _backwards(model.graph, output.name, weights):
            if node.op_type in LAYERS:
                held = [name for name in node.input[:2] if name in weights]
                if len(held) == 1 and held[0] == node.input[1]:
                    shape = weights[held[0]]
                    transposed = any(a.name == "transB" and a.i for a in node.attribute)
                    taken = shape[1] if node.op_type == "Conv" or transposed else shape[0]
                    return node.input[0], taken, 4 if node.op_type == "Conv" else 2
                break
            if node.op_type not in BEHIND:
                break
    for output in model.graph.output:
        dims = known[output.name].type.tensor_type.shape.dim
        place = 1 if len(dims) == 4 else -1
        if len(dims) in (2, 4) and dims[place].dim_value > 0:
            return output.name, dims[place].dim_value, len(dims)
    names = ", ".join(f"'{output.name}'" for output in model.graph.output)
    raise ConversionError(
        f"with_head: no output of the ONNX model can carry a new head ({names}), expected rows or maps of features; "
        "convert it to .circle first and choose another tensor as output"
    )


def _backwards(graph: Any, name: str, weights: dict[str, list[int]]) -> Iterator[Any]:
    """Makers of a tensor, along the one operand that is computed."""
    makers = {made: node for node in graph.node for made in node.output}
    while name in makers:
        node = makers[name]
        yield node
        computed = [one for one in node.input if one in makers and makers[one].op_type != "Constant"]
        if len(computed) != 1:
            return
        name = computed[0]
