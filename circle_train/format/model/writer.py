"""An ir.Module to a .circle or .tflite file; reader.py is its mirror image, top to bottom.

A module that was loaded and whose tables would come out as they went in is saved as a patch: the bytes of its
file with new constants in place of the old (patch.py). Otherwise all tables are written anew.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from circle_train.errors import ConfigError, ModelError
from circle_train.format.atomic import atomic_write
from circle_train.format.flatbuffer.decode import Damage, Table
from circle_train.format.flatbuffer.encode import LARGEST, Chunk, encode_chunks
from circle_train.format.flatbuffer.schema import TABLES, TFLITE_TABLES
from circle_train.format.metadata import attachments
from circle_train.format.model.carried import Apart, Signature
from circle_train.format.model.indices import Indices
from circle_train.format.model.nodes import LARGE_OPTIONS, write_node, write_operator_code
from circle_train.format.model.patch import patch
from circle_train.format.model.subset import check_tflite
from circle_train.format.model.tensors import write_tensor
from circle_train.ir import Buffer, Graph, Metadata, Module
from circle_train.ir.mapped import files_behind, require_unchanged
from circle_train.ops.control.subgraph import WithGraphs

SUFFIXES = {".circle": "CIR0", ".tflite": "TFL3"}


def save(module: Module, path: str | os.PathLike[str]) -> None:
    """Write a file, whole or not at all; its suffix decides between Circle and TFLite."""
    suffix = os.path.splitext(os.fspath(path))[1].lower()
    if suffix not in SUFFIXES:
        raise ConfigError(
            f"{os.fspath(path)}: the suffix is '{suffix}', expected one of {', '.join(SUFFIXES)}"
        )
    chunks = write_chunks(module, SUFFIXES[suffix])
    with atomic_write(path) as file:
        file.writelines(chunks)


def with_buffers(module: Module, fresh: Mapping[Buffer, Buffer], apart: Apart | None = None) -> Module:
    """A module that shares everything with another one but the contents of these buffers, and what is apart from now on."""
    earlier: dict[Buffer, Buffer] = module.carried.get("replaced", {})
    replaced = {old: fresh.get(new, new) for old, new in earlier.items()} | dict(fresh)
    return replace(
        module,
        buffers=[fresh.get(buffer, buffer) for buffer in module.buffers],
        metadata=[Metadata(entry.name, fresh.get(entry.buffer, entry.buffer)) for entry in module.metadata],
        carried=module.carried | {"replaced": replaced} | ({"apart": apart} if apart is not None else {}),
    )


def write(module: Module, identifier: str | None = None) -> bytes:
    """The bytes of a file; "CIR0", "TFL3", or as the module was loaded."""
    return b"".join(write_chunks(module, identifier))


def write_chunks(module: Module, identifier: str | None = None) -> list[Chunk]:
    """The same in pieces, of which constants are the module's own memory."""
    identifier = identifier or module.identifier
    if identifier not in SUFFIXES.values():
        raise ConfigError(
            f"the file identifier is '{identifier}', expected one of {', '.join(SUFFIXES.values())}"
        )
    require_unchanged(files_behind(module))
    module = with_all_graphs(module)
    indices = Indices(module)
    try:
        root = write_module(module, indices)
    except Damage as damage:
        raise ModelError(f"the module cannot be saved: {damage.what}; make it fit") from None
    if identifier == "TFL3":
        check_tflite(root)
    patched = patch(module, root, indices.buffers, identifier)
    if patched is not None:
        return patched
    return [*write_anew(root, indices.buffers, identifier), attachments.pack(module.attachments)]


def write_anew(root: Table, buffers: Sequence[Buffer], identifier: str) -> list[Chunk]:
    """All tables; constants inside the flatbuffer while they fit, behind it where they were or must be."""
    tables = TABLES if identifier == "CIR0" else TABLES | TFLITE_TABLES
    too_large = sum(buffer.nbytes + 32 for buffer in buffers) > LARGEST - (64 << 20)
    outside = [i for i, b in enumerate(buffers) if b.nbytes and (too_large or b.carried.get("offset", 0) > 1)]
    entries: list[Table] = root["buffers"]
    for index, buffer in enumerate(buffers):
        entries[index] = {key: value for key, value in buffer.carried.items() if key != "offset"}
        if "size" in buffer.carried:  # meaningless, but ONERT writes it
            entries[index]["size"] = buffer.nbytes
        if index in outside:
            entries[index] |= {"offset": 2, "size": buffer.nbytes}
        elif buffer.nbytes:
            entries[index]["data"] = buffer.bytes
    _inline_large_options(root)
    chunks = encode_chunks("Model", root, identifier.encode(), tables)
    if not outside:
        return chunks
    end = sum(len(chunk) for chunk in chunks)
    for index in outside:
        end += -end % 16
        entries[index]["offset"] = end
        end += buffers[index].nbytes
    chunks = encode_chunks("Model", root, identifier.encode(), tables)
    end = sum(len(chunk) for chunk in chunks)
    for index in outside:
        content = np.ascontiguousarray(buffers[index].bytes).data.cast("B")
        chunks += [bytes(-end % 16), content]
        end += -end % 16 + len(content)
    return chunks


def _inline_large_options(root: Table) -> None:
    """Custom options that lay behind the flatbuffer move into it."""
    for graph in root["subgraphs"]:
        for operator in graph["operators"]:
            if LARGE_OPTIONS in operator:
                operator["custom_options"] = operator.pop(LARGE_OPTIONS)
                operator["large_custom_options_offset"] = operator["large_custom_options_size"] = 0


def with_all_graphs(module: Module) -> Module:
    """The module, with the graphs that only operators refer to."""
    graphs = list(module.graphs)
    for graph in graphs:
        for node in graph.nodes:
            if isinstance(node.op, WithGraphs):
                graphs += [other for other in node.op.graphs if not any(other is known for known in graphs)]
    return module if len(graphs) == len(module.graphs) else replace(module, graphs=graphs)


def write_module(module: Module, indices: Indices) -> Table:
    """The Model table; its buffers are entries without their contents."""
    root: Table = dict(module.carried.get("fields", {}))
    root["version"] = module.version
    graphs = [write_graph(graph, indices) for graph in module.graphs]
    root["operator_codes"] = [write_operator_code(code) for code in indices.codes]
    root["subgraphs"] = graphs
    if module.description:
        root["description"] = module.description
    if module.metadata:
        extra = module.carried.get("metadata_fields", {})
        root["metadata"] = [
            {"name": entry.name, "buffer": indices.buffer(entry.buffer)} | extra.get(entry.name, {})
            for entry in module.metadata
        ]
    if "metadata_buffer" in module.carried:
        numbers = [indices.buffer(buffer) for buffer in module.carried["metadata_buffer"]]
        root["metadata_buffer"] = np.array(numbers, np.int32)
    if "signatures" in module.carried:
        root["signature_defs"] = [
            write_signature(signature, indices) for signature in module.carried["signatures"]
        ]
    root["buffers"] = [dict(buffer.carried) for buffer in indices.buffers]
    return root


def write_graph(graph: Graph, indices: Indices) -> Table:
    """A SubGraph table."""
    table: Table = dict(graph.carried.get("fields", {}))
    tensors = indices.tensors(graph)
    numbers = [indices.buffer_of(tensor) for tensor in tensors.items]
    table["tensors"] = [
        write_tensor(tensor, number, indices.buffers[number])
        for tensor, number in zip(tensors.items, numbers, strict=True)
    ]
    table["inputs"] = np.array([tensors.index(tensor) for tensor in graph.inputs], np.int32)
    table["outputs"] = np.array([tensors.index(tensor) for tensor in graph.outputs], np.int32)
    nodes = graph.nodes
    if "file_order" in graph.carried and all(node.index >= 0 for node in nodes):
        nodes = sorted(nodes, key=lambda node: node.index)
    graphs = indices.module.graphs
    table["operators"] = [
        write_node(indices.as_read(node), indices.code(node), tensors.index, graphs) for node in nodes
    ]
    if graph.name:
        table["name"] = graph.name
    return table


def write_signature(signature: Signature, indices: Indices) -> Table:
    """A SignatureDef table."""
    table: Table = dict(signature.fields)
    graph = indices.graph(signature.graph)
    tensors = indices.tensors(graph)
    for field, entries in (("inputs", signature.inputs), ("outputs", signature.outputs)):
        extra: list[Table] = [*signature.entry_fields.get(field, ()), *({} for _ in entries)]
        table[field] = [
            {"name": name, "tensor_index": tensors.index(tensor)} | fields
            for (name, tensor), fields in zip(entries, extra, strict=False)
        ]
    table["signature_key"] = signature.key
    table["subgraph_index"] = indices.graph_index(graph)
    return table
