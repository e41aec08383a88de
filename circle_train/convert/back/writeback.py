"""Trained values back into the ONNX file: the same graph and names, only initializers (or Constant nodes) differ."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import BinaryIO

from circle_train.convert.building.provenance import Provenance
from circle_train.convert.onnx_file.elements import bytes_of, nbytes_of, to_array
from circle_train.convert.onnx_file.importer import external_file
from circle_train.convert.onnx_file.messages import ELEMENTS, EXTERNAL, OUTSIDE, RAW, read_model
from circle_train.convert.onnx_file.protobuf import Data, Message
from circle_train.convert.onnx_file.rewriting import (
    Later,
    Piece,
    field_bytes,
    field_head,
    rewritten,
    without,
    write_pieces,
)
from circle_train.convert.stages.names import names_read
from circle_train.errors import ConversionError
from circle_train.format.atomic import atomic_write, atomic_writes
from circle_train.ir.mapped import open_bytes
from circle_train.ir.tensor_type import Array

METADATA_PROPS = 14
"""The field of ModelProto."""
ALIGNMENT = 4096
"""Of tensors in an external data file, so that they can be mapped into memory."""
PIECE = 1 << 20
"""Bytes of a file that are looked at together."""

Value = Callable[[], Array]
"""Makes the elements of a tensor as the ONNX file lays them out, when they are written."""


def write_back(
    provenance: Provenance,
    values: Mapping[str, Array],
    path: str | os.PathLike[str],
    outputs: Sequence[str] | None = None,
    metadata: Mapping[str, str] | None = None,
) -> None:
    """Write the model that was loaded to `path`, with these values of constants in its initializers.

    With `outputs` it computes the tensors of these names and holds nothing that they do not need; `metadata` are added to its
    properties.
    """
    raw = source_of(provenance)
    strangers = sorted(set(values) - set(provenance.lineages))
    if strangers:
        raise ConversionError(
            f"{os.fspath(path)}: '{strangers[0]}' was trained but is no initializer of the ONNX model, so it "
            f"cannot be put back ({provenance.engine} engine); export it as .circle"
        )
    if outputs is not None:
        raw = choose_outputs(raw, outputs)
    model = read_model(raw)
    fresh = {name: partial(provenance.to_onnx, name, value) for name, value in values.items()}
    external = [tensor for tensor in model.graph.initializer if tensor.data_location == EXTERNAL]
    held = {t.name: t for t in model.graph.initializer if t.data_location != EXTERNAL}
    for node in model.graph.node:
        if node.op_type == "Constant" and not fresh.keys().isdisjoint(node.output):
            held[node.output[0]] = next(a.t for a in node.attribute if a.name == "value")
    other = {t: fresh[name] for name, t in held.items() if name in fresh and not _holds(t, fresh[name])}
    changes = {tensor: _with_elements(tensor, make) for tensor, make in other.items()}
    if not external:
        with atomic_write(path) as file:
            write_pieces(file, [*rewritten(model, changes), _entries(METADATA_PROPS, metadata or {})])
        return
    beside = f"{os.fspath(path)}.data"
    with atomic_writes([beside, path]) as (data, file):
        changes |= _write_external(external, provenance, fresh, data, os.path.basename(beside))
        write_pieces(file, [*rewritten(model, changes), _entries(METADATA_PROPS, metadata or {})])


def _entries(number: int, given: Mapping[str, str]) -> bytes:
    """Pairs of strings in that field; behind others of it, a reader adds them to these."""
    pairs = (field_bytes(1, key.encode()) + field_bytes(2, value.encode()) for key, value in given.items())
    return b"".join(field_bytes(number, pair) for pair in pairs)


def choose_outputs(raw: Data, names: Sequence[str]) -> bytes:
    """Make these tensors the outputs; take out nodes and initializers that none of them needs. Types are for onnx to infer."""
    import onnx

    model = onnx.ModelProto.FromString(bytes(raw))
    graph = model.graph
    made = {name for node in graph.node for name in node.output if name}
    if unknown := [name for name in names if name not in made]:
        raise ConversionError(
            f"outputs: no node of the ONNX model makes '{unknown[0]}'; name one of its tensors"
        )
    inferred = onnx.shape_inference.infer_shapes(model).graph
    known = {info.name: info for info in (*inferred.output, *inferred.value_info)}
    infos = [known.get(name) or onnx.helper.make_empty_tensor_value_info(name) for name in names]
    needed, kept = set(names), []
    for node in reversed(graph.node):
        if needed & set(node.output):
            kept.append(node)
            needed |= names_read([node])
    for field, items in (
        ("output", infos),
        ("node", kept[::-1]),
        ("initializer", [tensor for tensor in graph.initializer if tensor.name in needed]),
        ("value_info", []),
    ):
        copies = [type(item).FromString(item.SerializeToString()) for item in items]
        graph.ClearField(field)
        getattr(graph, field).extend(copies)
    return bytes(model.SerializeToString())


def source_of(provenance: Provenance) -> Data:
    """The bytes of the file that was loaded, read where they are looked at; it must not have changed since."""
    if isinstance(provenance.source, bytes):
        return provenance.source
    if provenance.source is None:
        raise ConversionError(
            "the package does not hold the ONNX model that it was made of; export it as .circle or .tflite, or put the "
            "parameters into the model where it is: ct.load('net.onnx').with_parameters(…)"
        )
    if not provenance.source.is_file():
        raise ConversionError(
            f"'{provenance.source}' is gone; put the ONNX model back where it was loaded from"
        )
    try:
        raw, digest = open_bytes(provenance.source), _digest_of(provenance.source)
    except OSError as error:
        raise ConversionError(f"'{provenance.source}' cannot be read ({error.strerror})") from error
    if digest != provenance.digest:
        raise ConversionError(
            f"'{provenance.source}' has changed since it was loaded; load it again before training"
        )
    return raw


def _digest_of(path: Path) -> str:
    """Read in pieces that need not stay."""
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        while piece := file.read(PIECE):
            digest.update(piece)
    return digest.hexdigest()


def _bytes_of(tensor: Message, make: Value) -> memoryview:
    """The value as the tensor's elements."""
    value = make()
    if tuple(value.shape) != tuple(tensor.dims):
        raise ConversionError(f"initializer '{tensor.name}' is {tuple(tensor.dims)}, the value {value.shape}")
    return bytes_of(value, tensor)


def _holds(tensor: Message, make: Value) -> bool:
    """Whether these are its elements already: in whatever field, they stay as they are."""
    return bytes(_bytes_of(tensor, make)) == bytes(bytes_of(to_array(tensor), tensor))


def _with_elements(tensor: Message, make: Value) -> list[Piece]:
    """The tensor with these elements as raw bytes, whichever field held them; they are made when they are written."""
    nbytes = nbytes_of(tensor)
    return [
        without(tensor, ELEMENTS),
        field_head(RAW, nbytes),
        Later(nbytes, partial(_bytes_of, tensor, make)),
    ]


def _write_external(
    external: list[Message], provenance: Provenance, fresh: Mapping[str, Value], file: BinaryIO, name: str
) -> dict[Message, list[Piece]]:
    """The data file of that name beside the new model, with the old values of whatever was not trained; what then is
    written of each tensor."""
    assert isinstance(provenance.source, Path)
    folder = provenance.source.parent
    changes: dict[Message, list[Piece]] = {}
    for tensor in external:
        make = fresh.get(tensor.name)
        data = _bytes_of(tensor, make) if make else _old_bytes(tensor, folder)
        offset, length = _append(file, data)
        entries = {"location": name, "offset": str(offset), "length": str(length)}
        changes[tensor] = [without(tensor, [OUTSIDE]), _entries(OUTSIDE, entries)]
    return changes


def _append(file: BinaryIO, data: bytes | memoryview) -> tuple[int, int]:
    file.write(bytes(-file.tell() % ALIGNMENT))
    offset = file.tell()
    file.write(data)
    return offset, len(data)


def _old_bytes(tensor: Message, folder: Path) -> bytes:
    facts = {entry.key: entry.value for entry in tensor.external_data}
    path = external_file(folder, facts["location"], f"initializer '{tensor.name}'")
    with open(path, "rb") as file:
        file.seek(int(facts.get("offset", 0)))
        return file.read(int(facts.get("length", nbytes_of(tensor))))
