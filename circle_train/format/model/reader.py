"""A .circle or .tflite file to an ir.Module; writer.py is its mirror image, top to bottom."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any, BinaryIO

import numpy as np

from circle_train.errors import ModelError, refusing
from circle_train.format.flatbuffer.decode import Damage, Table, Tables, decode
from circle_train.format.flatbuffer.schema import TABLES, TFLITE_TABLES
from circle_train.format.metadata import attachments
from circle_train.format.metadata.description import ENTRY
from circle_train.format.model.carried import OperatorCode, Signature, Source
from circle_train.format.model.lookups import at, indices_of, pick, tables_of, unknown_of
from circle_train.format.model.nodes import link_graphs, read_node, read_operator_code, sort_nodes
from circle_train.format.model.tensors import read_signs, read_tensor
from circle_train.ir import Buffer, Graph, Metadata, Module, Tensor
from circle_train.ir.mapped import open_bytes
from circle_train.ir.node import EMPTY
from circle_train.ir.tensor_type import Array
from circle_train.ir.verify import MOST_ENDS

SCHEMAS: dict[str, Tables] = {"CIR0": TABLES, "TFL3": TABLES | TFLITE_TABLES}
"""The tables that a file identifier stands for."""


Bytes = bytes | bytearray | memoryview
MOST = 1 << 17
"""Tensors, and operators, of a graph: a file can name one table as often as it likes, four bytes a time."""


def read(source: str | os.PathLike[str] | Bytes | BinaryIO, name: str | None = None) -> Module:
    """The module of a file, bytes (of that name) or file object; constants are views of these, a large file is mapped."""
    data, label = _open(source)
    label = name or label
    identifier = bytes(data[4:8]).decode("latin-1")
    if identifier not in SCHEMAS:
        raise ModelError(
            f"{label}: bytes 4 to 8 are {identifier!r}, expected 'CIR0' (.circle) or 'TFL3' (.tflite): "
            "this is no such model; .onnx files are converted first"
        )
    with refusing(ModelError, label, "the file is damaged, load another copy"):
        root = decode(data, "Model", identifier.encode(), SCHEMAS[identifier], label)
        try:
            return read_module(Source(data, root, identifier))
        except Damage as damage:
            raise damage.as_error(label, "Model") from None


def _open(source: str | os.PathLike[str] | Bytes | BinaryIO) -> tuple[Array, str]:
    """All bytes, as a read-only array, and what to call them in messages."""
    if isinstance(source, (str, os.PathLike)):
        try:
            data = open_bytes(source)
        except OSError as error:
            raise ModelError(
                f"{os.fspath(source)}: cannot be read ({error.strerror}); check the path"
            ) from error
        if not len(data):
            raise ModelError(f"{os.fspath(source)}: the file is empty, expected a .circle or .tflite model")
        return np.frombuffer(data, np.uint8), os.fspath(source)
    given = source if isinstance(source, (bytes, bytearray, memoryview)) else source.read()
    return np.frombuffer(bytes(given), np.uint8), getattr(source, "name", None) or "model in memory"


def read_module(source: Source) -> Module:
    """The Model table."""
    root = source.root
    with at(".buffers"):
        buffers = [read_buffer(table, source.data) for table in tables_of(root, "buffers")]
    with at(".operator_codes"):
        codes = [read_operator_code(table) for table in tables_of(root, "operator_codes")]
    graphs = []
    for index, table in enumerate(tables_of(root, "subgraphs")):
        with at(f".subgraphs[{index}]"):
            graphs.append(read_graph(table, buffers, codes, source.data))
    if not graphs:
        raise Damage("there is no subgraph, expected at least one")
    link_graphs(graphs)
    module = Module(
        graphs, buffers, [], root.get("version", 0), root.get("description", ""), source.identifier
    )
    module.carried["source"] = source
    module.carried["operator_codes"] = codes
    for index, table in enumerate(tables_of(root, "metadata")):
        with at(f".metadata[{index}]"):
            module.metadata.append(
                Metadata(table.get("name", ""), pick(buffers, table.get("buffer", 0), "buffer"))
            )
            if extra := unknown_of(table):
                module.carried.setdefault("metadata_fields", {})[table.get("name", "")] = extra
    if any(entry.name == ENTRY for entry in module.metadata):
        module.attachments = attachments.unpack(source.data)
    if "metadata_buffer" in root:
        with at(".metadata_buffer"):
            indices = root["metadata_buffer"].tolist()
            module.carried["metadata_buffer"] = [pick(buffers, index, "buffer") for index in indices]
    if "signature_defs" in root:
        module.carried["signatures"] = []
        for index, table in enumerate(root["signature_defs"]):
            with at(f".signature_defs[{index}]"):
                module.carried["signatures"].append(read_signature(table, graphs))
    module.carried["fields"] = unknown_of(root)
    return module


def read_buffer(table: Table, data: Array) -> Buffer:
    """Bytes within the flatbuffer, or behind it where `offset` says so (`size` alone says nothing)."""
    content: Array = table.get("data", EMPTY)
    offset, size = table.get("offset", 0), table.get("size", 0)
    if offset > 1:
        if offset + size > data.size:
            raise Damage(f"bytes {offset} to {offset + size} are meant, the file has {data.size}")
        content = data[offset : offset + size]
    carried: Any = {key: value for key, value in table.items() if key != "data"}
    return Buffer(content, carried)


def read_graph(table: Table, buffers: Sequence[Buffer], codes: Sequence[OperatorCode], data: Array) -> Graph:
    """A SubGraph table: tensors first, then what refers to them."""
    tensors: list[Tensor] = []
    for field in ("tensors", "operators"):
        if len(tables_of(table, field)) > MOST:
            raise Damage(f"there are {len(tables_of(table, field))} {field}, expected at most {MOST}")
    for index, tensor in enumerate(tables_of(table, "tensors")):
        with at(f".tensors[{index}]"):
            tensors.append(read_tensor(tensor, buffers))
    graph = Graph(table.get("name", ""), tensors=tensors)
    for field, group in (("inputs", graph.inputs), ("outputs", graph.outputs)):
        with at(f".{field}"):
            group += [pick(tensors, index, "tensor") for index in indices_of(table, field, MOST_ENDS)]
    for index, operator in enumerate(tables_of(table, "operators")):
        with at(f".operators[{index}]"):
            graph.append(read_node(operator, index, codes, tensors, data))
    graph.carried["fields"] = {
        key: value for key, value in table.items() if isinstance(key, int) or key == "debug_metadata_index"
    }
    _settle_buffers(graph)
    read_signs(graph)
    if sort_nodes(graph):
        graph.carried["file_order"] = True
    return graph


def _settle_buffers(graph: Graph) -> None:
    """Empty buffers stay with constants of no elements; elsewhere they are only an entry of the file."""
    inputs = set(graph.inputs)
    for index, tensor in enumerate(graph.tensors):
        if tensor.buffer is None:
            continue
        computed = tensor.producer is not None or tensor in inputs
        if tensor.buffer.nbytes == 0 and (computed or tensor.type.size != 0):
            tensor.carried["buffer"] = tensor.buffer
            tensor.buffer = None
        elif computed and tensor.buffer.nbytes and not tensor.is_variable:
            with at(f".tensors[{index}]"):
                raise Damage(
                    f"'{tensor.name}' holds a constant, yet it is an input or an operator writes to it"
                )


def read_signature(table: Table, graphs: Sequence[Graph]) -> Signature:
    """A SignatureDef table, its tensor indices as tensors."""
    graph = pick(graphs, table.get("subgraph_index", 0), "subgraph")
    inputs, outputs = (
        [
            (entry.get("name", ""), pick(graph.tensors, entry.get("tensor_index", 0), "tensor"))
            for entry in tables_of(table, field)
        ]
        for field in ("inputs", "outputs")
    )
    extra = {
        field: [unknown_of(entry) for entry in tables_of(table, field)] for field in ("inputs", "outputs")
    }
    return Signature(table.get("signature_key", ""), graph, inputs, outputs, unknown_of(table), extra)
