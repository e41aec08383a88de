"""ONNX operators that ONNX itself defines by a function of simpler ones."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from circle_train.convert.building.refusal import Refusal
from circle_train.convert.onnx_file.messages import as_onnx, read_attribute, read_function
from circle_train.ir import Tensor


def is_defined(op_type: str, domain: str) -> bool:
    """Whether the standard gives a function for this operator."""
    import onnx

    if not onnx.defs.has(op_type, domain):
        return False
    schema: Any = onnx.defs.get_schema(op_type, domain)
    return bool(schema.has_function)


def defaults(op_type: str, domain: str, opset: int) -> dict[str, Any]:
    """An operator's attributes that the standard gives a value."""
    import onnx

    schema = onnx.defs.get_schema(op_type, opset, domain)
    given = {name: a.default_value for name, a in schema.attributes.items() if a.default_value.type}
    return {name: read_attribute(proto.SerializeToString()) for name, proto in given.items()}


def expansion(
    node: Any, attributes: Mapping[str, Any], domain: str, opset: int, inputs: Sequence[Tensor | None]
) -> Any | None:
    """The FunctionProto that the standard gives for this node, or None."""
    import onnx

    if not onnx.defs.has(node.op_type, domain):
        return None
    try:
        schema: Any = onnx.defs.get_schema(node.op_type, opset, domain)
    except onnx.defs.SchemaError:
        raise Refusal(f"{node.op_type} does not exist in opset {opset}") from None
    if schema.has_function:
        version = max((v for v in schema.function_opset_versions if v <= opset), default=None)
        if version is not None:
            return read_function(schema.get_function_with_opset_version(version))
    if schema.has_context_dependent_function:
        version = max(
            (v for v in schema.context_dependent_function_opset_versions if v <= opset), default=None
        )
        if version is not None:
            types = [_type_of(tensor) for tensor in inputs]
            made = schema.get_context_dependent_function_with_opset_version(
                version, _resolved(node, attributes), types
            )
            return read_function(made)
    return None


def _resolved(node: Any, attributes: Mapping[str, Any]) -> bytes:
    """The node with a function's attributes in the place of references to them."""
    copy = as_onnx("NodeProto", node)
    if any(attribute.ref_attr_name for attribute in node.attribute):
        copy.ClearField("attribute")
        for name, proto in attributes.items():
            made = as_onnx("AttributeProto", proto)
            made.name = name
            copy.attribute.append(made)
    return bytes(copy.SerializeToString())


def _type_of(tensor: Tensor | None) -> bytes:
    import onnx

    if tensor is None or tensor.dtype.numpy is None:
        return b""
    code = onnx.helper.np_dtype_to_tensor_dtype(tensor.dtype.numpy)
    shape = [dim if dim >= 0 else None for dim in tensor.shape]
    return bytes(onnx.helper.make_tensor_type_proto(code, shape).SerializeToString())
