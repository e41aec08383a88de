"""What a module carries of the file it came from, besides what its graphs say."""

from __future__ import annotations

from dataclasses import field

from circle_train.format.flatbuffer.decode import Table
from circle_train.ir import Buffer, Graph, Node, Tensor
from circle_train.ir.tensor_type import Array
from circle_train.record import mutable


@mutable
class Source:
    """The file as it was read; saving compares with it and, when only constants differ, patches its bytes."""

    data: Array = field(repr=False)
    """All bytes, uint8."""
    root: Table = field(repr=False)
    identifier: str


@mutable
class Apart:
    """What shared numbers in the file and no longer does."""

    buffers: dict[Tensor, Buffer] = field(default_factory=dict)
    """By tensor: a buffer of its own."""
    inputs: dict[Node, list[Tensor | None]] = field(default_factory=dict)
    """By node: what it reads from now on."""


@mutable
class Signature:
    """A named entry point: names for the inputs and outputs of one graph."""

    key: str
    graph: Graph
    inputs: list[tuple[str, Tensor]]
    outputs: list[tuple[str, Tensor]]
    fields: Table = field(default_factory=dict, repr=False)
    """Slots of a newer schema."""
    entry_fields: dict[str, list[Table]] = field(default_factory=dict, repr=False)
    """The same of the entries of `inputs` and `outputs`."""


@mutable
class OperatorCode:
    """An entry of the operator code table: what operators of this kind are called, and in which version."""

    name: str
    code: int
    version: int
    custom_code: str | None = None
    fields: Table = field(default_factory=dict, repr=False)
    """The entry as it lies in the file."""
