"""Model files that hold everything the format has, made here."""

from __future__ import annotations

from typing import Any

import numpy as np

from circle_train.format.flatbuffer.decode import Table
from circle_train.format.flatbuffer.encode import encode
from circle_train.format.flatbuffer.schema import ENUMS, TABLES, UNIONS
from circle_train.format.model.reader import SCHEMAS
from circle_train.ir import DType, Graph, Module, Tensor, TensorType
from circle_train.ir.graph import constant
from circle_train.ops import REGISTRY
from circle_train.ops.attributes import Activation

CODES = ENUMS["BuiltinOperator"]
TAGS = {name: tag for union in ("BuiltinOptions", "BuiltinOptions2") for tag, name in UNIONS[union].items()}


def ints(*values: int) -> Any:
    return np.array(values, np.int32)


def raw(*values: float) -> Any:
    return np.array(values, np.float32).view(np.uint8)


def small() -> Module:
    """A convolution, a dense layer and SOFTMAX, built by hand as the ONNX converter does."""
    rng = np.random.default_rng(3)
    graph = Graph("main")
    x = Tensor("x", TensorType(DType.FLOAT32, (1, 4, 4, 2)))
    graph.inputs.append(x)
    kernel = constant(rng.standard_normal((3, 2, 2, 2), np.float32), "kernel")
    bias = constant(rng.standard_normal(3, np.float32), "bias")
    y = graph.emit(
        REGISTRY["CONV_2D"](fused_activation_function=Activation.RELU), x, kernel, bias, name="conv"
    )
    flat = int(np.prod(y.shape))
    y = graph.emit(REGISTRY["RESHAPE"](), y, constant(np.array([1, flat], np.int32), "shape"), name="flat")
    weights = constant(rng.standard_normal((5, flat), np.float32), "weights")
    y = graph.emit(REGISTRY["FULLY_CONNECTED"](), y, weights, None, name="dense")
    graph.outputs.append(graph.emit(REGISTRY["SOFTMAX"](), y, name="softmax"))
    return Module([graph], description="made by hand")


def rich() -> Table:
    """A Model table with two subgraphs and a use of nearly every field, as the decoder would give it."""
    quantization: Table = {
        "min": np.array([-1.0], np.float32),
        "max": np.array([1.0], np.float32),
        "scale": np.array([0.5, 0.25], np.float32),
        "zero_point": np.array([0, 3], np.int64),
        "details_type": 1,
        "details": {"custom": np.array([7, 8, 9], np.uint8)},
        "quantized_dimension": 1,
    }
    dense: Table = {"format": 0, "dense_size": 2}
    sparse: Table = {
        "format": 1,
        "array_segments_type": 1,
        "array_segments": {"values": ints(0, 1, 2)},
        "array_indices_type": 3,
        "array_indices": {"values": np.array([0, 1], np.uint8)},
    }
    sparsity: Table = {"traversal_order": ints(0, 1), "block_map": ints(), "dim_metadata": [dense, sparse]}
    tensors: list[Table] = [
        {"shape": ints(1, 2), "type": 0, "name": "x", "shape_signature": ints(-1, 2), "has_rank": True},
        {"shape": ints(2, 2), "type": 0, "buffer": 1, "name": "w"},
        {"shape": ints(2, 2), "type": 0, "buffer": 1, "name": "w again"},
        {"shape": ints(1, 2), "type": 9, "name": "q", "quantization": quantization},
        {"shape": ints(2, 2), "type": 0, "buffer": 2, "name": "sparse", "sparsity": sparsity},
        {"type": 14, "name": "v", "variant_tensors": [{"shape": ints(3), "type": 2, "has_rank": True}]},
        {"shape": ints(1, 2), "type": 0, "name": "state", "is_variable": True},
        {"shape": ints(3), "type": 17, "buffer": 3, "name": "four bits"},
        {"shape": ints(1, 2), "type": 0, "name": "y"},
        {"shape": ints(1, 2), "type": 0, "name": "middle"},
        {"shape": ints(2), "type": 5, "buffer": 4, "name": "text"},
        {"shape": ints(1, 2), "type": 0, "name": "custom result"},
    ]
    # Operator 0 reads what operator 1 writes: the file's order is not one to run in.
    operators: list[Table] = [
        {
            "opcode_index": 0,
            "inputs": ints(9, 0),
            "outputs": ints(8),
            "builtin_options_type": TAGS["AddOptions"],
            "builtin_options": {"fused_activation_function": 1, "pot_scale_int16": False},
        },
        {
            "opcode_index": 1,
            "inputs": ints(0, 1, -1),
            "outputs": ints(9),
            "builtin_options_type": TAGS["FullyConnectedOptions"],
            "builtin_options": {"keep_num_dims": True},
            "debug_metadata_index": 4,
        },
        {
            "opcode_index": 2,
            "inputs": ints(0, 2),
            "outputs": ints(11),
            "custom_options": np.array([1, 2, 3], np.uint8),
            "mutating_variable_inputs": np.array([False, True]),
            "intermediates": ints(3, 6),
        },
        {
            "opcode_index": 3,
            "inputs": ints(0),
            "outputs": ints(5),
            "builtin_options_type": TAGS["HashtableOptions"],
            "builtin_options": {"table_id": 1, "key_dtype": 4},
        },
        {
            "opcode_index": 4,
            "inputs": ints(0),
            "outputs": ints(3),
            "builtin_options_2_type": TAGS["StablehloConvolutionOptions"],
            "builtin_options_2": {"window_strides": np.array([1, 2], np.int64)},
        },
    ]
    return {
        "version": 3,
        "description": "rich",
        "operator_codes": [
            {"deprecated_builtin_code": 0, "builtin_code": 0, "version": 3},
            {"deprecated_builtin_code": 9, "version": 6},
            {"deprecated_builtin_code": 32, "builtin_code": 32, "custom_code": "mine", "version": 2},
            {"deprecated_builtin_code": 127, "builtin_code": CODES["HASHTABLE"]},
            {"deprecated_builtin_code": 127, "builtin_code": CODES["STABLEHLO_CONVOLUTION"]},
        ],
        "subgraphs": [
            {
                "tensors": tensors,
                "inputs": ints(0),
                "outputs": ints(8),
                "operators": operators,
                "name": "main",
                "debug_metadata_index": 2,
            },
            {
                "tensors": [{"shape": ints(1), "name": "s", "buffer": 0}],
                "inputs": ints(0),
                "outputs": ints(0),
                "operators": [],
                "name": "branch",
            },
        ],
        "buffers": [
            {},
            {"data": raw(1, 2, 3, 4)},
            {"data": raw(5, 6)},
            {"data": np.array([1, 2], np.uint8)},
            {"data": np.arange(9, dtype=np.uint8)},
            {},
            {"data": np.array([4, 5], np.uint8)},
            {"data": raw(1, 2, 3, 4)},
        ],
        "metadata_buffer": ints(6),
        "metadata": [{"name": "note", "buffer": 6}],
        "signature_defs": [
            {
                "inputs": [{"name": "a", "tensor_index": 0}],
                "outputs": [{"name": "b", "tensor_index": 8}],
                "signature_key": "serve",
                "subgraph_index": 0,
            }
        ],
    }


def rich_file(identifier: bytes = b"CIR0") -> bytes:
    return encode("Model", rich(), identifier, SCHEMAS[identifier.decode()])


def newer(extra: dict[str, Any], types: dict[str, str]) -> bytes:
    """A file of a schema whose Tensor has more fields than ours."""
    known = TABLES["Tensor"]
    tables = {**TABLES, "Tensor": (*known, *((name, type_, None, "") for name, type_ in types.items()))}
    root = rich()
    root["subgraphs"][0]["tensors"][0].update(extra)
    return encode("Model", root, b"CIR0", tables)
