"""Float32 masters of weights that the file holds in another form (float16, integers with a scale, sparse)."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from circle_train.ir import Buffer, DType, Graph, Node, Quantization, Tensor, TensorType
from circle_train.ir.coded import Coded
from circle_train.ir.graph import constant
from circle_train.ir.tensor_type import Array
from circle_train.ops.internal.integers.hybrid import Hybrid
from circle_train.ops.numeric.fill import Cast
from circle_train.ops.numeric.quantize import Densify, Dequantize, Spread, dequantize


def make_float_masters(graph: Graph) -> None:
    """Replace DEQUANTIZE and DENSIFY of constants by float32 constants that know their origin."""
    decoded = []
    for node in graph.nodes:
        source = node.inputs[0] if node.inputs else None
        op = node.op
        encoded = source is not None and source.buffer is not None and source.producer is None
        if source is None or not encoded or not isinstance(op, (Dequantize, Densify)):
            continue
        if isinstance(op, Dequantize) and _is_coded(source) and source.quantization is not None:
            made = node.outputs[0]
            made.buffer = _meant(source.data, source.quantization)
            made.type, made.origin = TensorType(DType.FLOAT32, source.shape), source
            decoded.append(node)
        elif isinstance(op, Densify) and (spread := op.spread(source)) is not None:
            _spread(graph, node, source, *spread)
        else:
            _decode(source, node.outputs[0], op.decode(source)[0])
            decoded.append(node)
    if decoded:
        graph.remove(decoded)


def decode_weights(graph: Graph) -> None:
    """Let operators between floats that hold integer weights (dynamic range) hold what these stand for."""
    decoded: dict[tuple[Buffer | None, object], Tensor] = {}
    for node in graph.nodes:
        coded = [t for t in node.inputs if t is not None and _is_coded(t)]
        others = [t for t in (*node.inputs, *node.outputs) if t is not None and not t.is_constant]
        if (
            isinstance(node.op, Hybrid)
            or not coded
            or not others
            or not all(t.dtype.is_float or t.quantization is None for t in others)
            or not any(t.dtype.is_float for t in node.outputs)
        ):
            continue
        inputs = list(node.inputs)
        for index, tensor in enumerate(inputs):
            if tensor is not None and _is_coded(tensor) and tensor.quantization is not None:
                key = (tensor.buffer, tensor.quantization)
                if key not in decoded:
                    real = Tensor(tensor.name, TensorType(DType.FLOAT32, tensor.shape), origin=tensor)
                    real.buffer = _meant(tensor.data, tensor.quantization)
                    decoded[key] = real
                inputs[index] = decoded[key]
        graph.reconnect(node, inputs)


def _meant(stored: Array, meaning: Quantization) -> Buffer:
    """What integers stand for; they stay as they are where that can be told later."""
    coded = Coded.of(stored, meaning)
    if coded is not None:
        return coded
    return Buffer(np.ascontiguousarray(dequantize(stored, meaning), np.float32).reshape(-1).view(np.uint8))


def _is_coded(tensor: Tensor) -> bool:
    known = tensor.quantization is not None and bool(tensor.quantization.scale)
    return tensor.is_constant and known and tensor.dtype in (DType.INT8, DType.UINT8)


def widen_float16(graph: Graph) -> None:
    """Compute in float32 what the file has in float16: small steps would be lost in its eleven bits."""
    wide: dict[Buffer, Buffer] = {}
    for tensor in [t for t in graph.all_tensors() if t.dtype is DType.FLOAT16]:
        if tensor.is_constant and tensor.buffer is not None:
            if tensor.buffer not in wide:
                elements = tensor.buffer.bytes.view(np.float16).astype(np.float32)
                wide[tensor.buffer] = Buffer(elements.view(np.uint8))
            tensor.buffer = wide[tensor.buffer]
        tensor.type = TensorType(DType.FLOAT32, tensor.shape)
    for node in graph.nodes:
        if isinstance(node.op, Cast):
            given = node.inputs[0]
            assert given is not None
            node.op = replace(node.op, in_data_type=given.dtype, out_data_type=node.outputs[0].dtype)


def _decode(source: Tensor, output: Tensor, value: Array) -> None:
    """Turn the output into a constant with the decoded elements; its origin is the encoded tensor."""
    is_float16 = output.dtype is DType.FLOAT16
    array = np.ascontiguousarray(value, np.float32 if output.dtype.is_float and not is_float16 else None)
    output.buffer = Buffer(array.reshape(-1).view(np.uint8))
    output.type = TensorType.of(array)
    output.origin = source


def _spread(graph: Graph, node: Node, source: Tensor, op: Spread, stored: Array) -> None:
    """Make the stored elements of a sparse constant the master; the node spreads them every time."""
    master = constant(stored, source.name)
    master.origin = source
    node.op = op
    graph.reconnect(node, [master])
    node.outputs[0].type = TensorType(master.dtype, op.shape)
