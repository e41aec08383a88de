"""ONNX operators that ONNX itself defines by a function of simpler ones."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import onnx

from circle_train.convert.refusal import Refusal
from circle_train.ir import Tensor


def expansion(node: Any, domain: str, opset: int, inputs: Sequence[Tensor | None]) -> Any | None:
    """The FunctionProto that the standard gives for this node, or None."""
    if not onnx.defs.has(node.op_type, domain):
        return None
    try:
        schema: Any = onnx.defs.get_schema(node.op_type, opset, domain)
    except onnx.defs.SchemaError:
        raise Refusal(f"{node.op_type} does not exist in opset {opset}") from None
    body = onnx.FunctionProto()
    if schema.has_function:
        version = max((v for v in schema.function_opset_versions if v <= opset), default=None)
        if version is not None:
            body.ParseFromString(schema.get_function_with_opset_version(version))
            return body
    if schema.has_context_dependent_function:
        version = max(
            (v for v in schema.context_dependent_function_opset_versions if v <= opset), default=None
        )
        if version is not None:
            types = [_type_of(tensor).SerializeToString() for tensor in inputs]
            made = schema.get_context_dependent_function_with_opset_version(
                version, node.SerializeToString(), types
            )
            body.ParseFromString(made)
            return body
    return None


def _type_of(tensor: Tensor | None) -> Any:
    if tensor is None or tensor.dtype.numpy is None:
        return onnx.TypeProto()
    code = onnx.helper.np_dtype_to_tensor_dtype(tensor.dtype.numpy)
    return onnx.helper.make_tensor_type_proto(code, [dim if dim >= 0 else None for dim in tensor.shape])
