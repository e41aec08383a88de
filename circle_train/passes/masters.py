"""Float32 masters of weights that the file holds in another form (float16, sparse)."""

from __future__ import annotations

import numpy as np

from circle_train.ir import Buffer, DType, Graph, Tensor, TensorType

DECODERS = ("DEQUANTIZE", "DENSIFY")


def make_float_masters(graph: Graph) -> None:
    """Replace DEQUANTIZE and DENSIFY of constants by a float32 constant that remembers the tensor it came from."""
    kept = []
    for node in graph.nodes:
        source = node.inputs[0] if node.inputs else None
        if node.op.name in DECODERS and source is not None and source.buffer is not None and source.producer is None:
            _decode(node.op, source, node.outputs[0])
        else:
            kept.append(node)
    graph.nodes = kept


def _decode(op: object, source: Tensor, output: Tensor) -> None:
    """Turn the output into a constant with the decoded elements; its origin is the encoded tensor."""
    (value,) = op.decode(source)  # type: ignore[attr-defined]
    array = np.ascontiguousarray(value, np.float32 if output.dtype is not DType.FLOAT16 else np.float16)
    output.buffer = Buffer(array.reshape(-1).view(np.uint8))
    output.type = TensorType(DType.of(array.dtype), array.shape)
    output.producer = None
    output.origin = source
