"""The messages of an ONNX file, as far as a conversion reads them (onnx.proto of the ONNX standard)."""

from __future__ import annotations

import enum
from typing import Any

from circle_train.convert.onnx_file.fields import (
    elements,
    integer,
    integers,
    message,
    messages,
    number,
    numbers,
    octets,
    octets_list,
    text,
    texts,
    view,
)
from circle_train.convert.onnx_file.protobuf import Damage, Data, Kind, Message, parse
from circle_train.ir.verify import MOST_ENDS


class Attribute(enum.IntEnum):
    """What an attribute holds."""

    FLOAT = 1
    INT = 2
    STRING = 3
    TENSOR = 4
    GRAPH = 5
    FLOATS = 6
    INTS = 7
    STRINGS = 8
    TENSORS = 9
    GRAPHS = 10
    SPARSE_TENSOR = 11
    SPARSE_TENSORS = 12
    TYPE_PROTO = 13
    TYPE_PROTOS = 14


class Element(enum.IntEnum):
    """What a tensor holds."""

    UNDEFINED = 0
    FLOAT = 1
    UINT8 = 2
    INT8 = 3
    UINT16 = 4
    INT16 = 5
    INT32 = 6
    INT64 = 7
    STRING = 8
    BOOL = 9
    FLOAT16 = 10
    DOUBLE = 11
    UINT32 = 12
    UINT64 = 13
    COMPLEX64 = 14
    COMPLEX128 = 15
    BFLOAT16 = 16
    FLOAT8E4M3FN = 17
    FLOAT8E4M3FNUZ = 18
    FLOAT8E5M2 = 19
    FLOAT8E5M2FNUZ = 20
    UINT4 = 21
    INT4 = 22
    FLOAT4E2M1 = 23
    FLOAT8E8M0 = 24
    UINT2 = 25
    INT2 = 26


EXTERNAL = 1
"""The data location of a tensor whose elements lie in another file."""
RAW, OUTSIDE = 9, 13
"""Fields of a tensor: its elements as bytes, and where they lie in another file."""
ELEMENTS = (4, 5, 7, RAW, 10, 11)
"""Fields that hold a tensor's numbers."""
ENTRY = Kind("StringStringEntryProto", {1: text("key"), 2: text("value")})
OPSET = Kind("OperatorSetIdProto", {1: text("domain"), 2: integer("version")})
TENSOR = Kind(
    "TensorProto",
    {
        1: integers("dims"),
        2: integer("data_type"),
        4: elements("float_data", "<f4"),
        5: elements("int32_data", "varint"),
        7: elements("int64_data", "varint"),
        8: text("name"),
        RAW: view("raw_data"),
        10: elements("double_data", "<f8"),
        11: elements("uint64_data", "varint"),
        OUTSIDE: messages("external_data", lambda: ENTRY),
        14: integer("data_location"),
    },
)
SPARSE = Kind(
    "SparseTensorProto",
    {1: message("values", lambda: TENSOR), 2: message("indices", lambda: TENSOR), 3: integers("dims")},
)
DIMENSION = Kind("Dimension", {1: integer("dim_value"), 2: text("dim_param")})
SHAPE = Kind("TensorShapeProto", {1: messages("dim", lambda: DIMENSION)})
TENSOR_TYPE = Kind("TypeProto.Tensor", {1: integer("elem_type"), 2: message("shape", lambda: SHAPE)})
OTHER_TYPE = Kind("another TypeProto", {})
OTHER_TYPES = {
    4: "sequence_type",
    5: "map_type",
    7: "opaque_type",
    8: "sparse_tensor_type",
    9: "optional_type",
}
"""What a value may be besides a tensor, by field."""
TYPE = Kind(
    "TypeProto",
    {1: message("tensor_type", lambda: TENSOR_TYPE)}
    | {place: message(name, lambda: OTHER_TYPE) for place, name in OTHER_TYPES.items()},
)
VALUE_INFO = Kind("ValueInfoProto", {1: text("name"), 2: message("type", lambda: TYPE)})
ATTRIBUTE: Kind = Kind(
    "AttributeProto",
    {
        1: text("name"),
        2: number("f"),
        3: integer("i"),
        4: octets("s"),
        5: message("t", lambda: TENSOR),
        6: message("g", lambda: GRAPH),
        7: numbers("floats"),
        8: integers("ints"),
        9: octets_list("strings"),
        10: messages("tensors", lambda: TENSOR),
        11: messages("graphs", lambda: GRAPH),
        20: integer("type"),
        21: text("ref_attr_name"),
    },
)
NODE: Kind = Kind(
    "NodeProto",
    {
        1: texts("input"),
        2: texts("output"),
        3: text("name"),
        4: text("op_type"),
        5: messages("attribute", lambda: ATTRIBUTE),
        7: text("domain"),
    },
)
GRAPH: Kind = Kind(
    "GraphProto",
    {
        1: messages("node", lambda: NODE),
        2: text("name"),
        5: messages("initializer", lambda: TENSOR),
        11: messages("input", lambda: VALUE_INFO),
        12: messages("output", lambda: VALUE_INFO, MOST_ENDS),
        13: messages("value_info", lambda: VALUE_INFO),
        15: messages("sparse_initializer", lambda: SPARSE),
    },
)
FUNCTION = Kind(
    "FunctionProto",
    {
        1: text("name"),
        4: texts("input"),
        5: texts("output"),
        6: texts("attribute"),
        7: messages("node", lambda: NODE),
        9: messages("opset_import", lambda: OPSET),
        10: text("domain"),
        11: messages("attribute_proto", lambda: ATTRIBUTE),
    },
)
MODEL = Kind(
    "ModelProto",
    {
        2: text("producer_name"),
        7: message("graph", lambda: GRAPH),
        8: messages("opset_import", lambda: OPSET),
        14: messages("metadata_props", lambda: ENTRY),
        25: messages("functions", lambda: FUNCTION),
    },
)


def read_model(data: Data) -> Message:
    """What an .onnx file is."""
    return parse(MODEL, data)


def read_function(data: bytes) -> Message:
    """What the ONNX standard defines an operator by."""
    return parse(FUNCTION, data)


def read_attribute(data: bytes) -> Message:
    return parse(ATTRIBUTE, data)


def as_onnx(name: str, message: Message) -> Any:
    """The message as the package onnx has it."""
    import onnx
    from google.protobuf.message import DecodeError

    try:
        return getattr(onnx, name).FromString(message.SerializeToString())
    except DecodeError as error:
        raise Damage(f"a {name} is damaged ({error})") from error
