"""Operator tables and the operator codes that they refer to, read and written."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from circle_train.format.flatbuffer.decode import Damage, Table
from circle_train.format.flatbuffer.schema import ENUMS, UNIONS
from circle_train.format.model.carried import OperatorCode
from circle_train.format.model.lookups import indices_of, pick
from circle_train.format.model.options import is_default, read_options, tag_of, write_options
from circle_train.ir import Graph, Node, Tensor
from circle_train.ir.order import in_order
from circle_train.ir.tensor_type import Array
from circle_train.ops.base import Op
from circle_train.ops.control.subgraph import WithGraphs
from circle_train.ops.opaque import Opaque
from circle_train.ops.registry import REGISTRY

OPERATORS = {number: name for name, number in ENUMS["BuiltinOperator"].items()}
CUSTOM = ENUMS["BuiltinOperator"]["CUSTOM"]
CUSTOM_PREFIX = "CUSTOM:"
"""Of the names of custom operators, before their custom code."""
PLACEHOLDER = 127
"""The old one-byte code of operators whose number does not fit it."""
CALL_ONCE = "CALL_ONCE"
"""The operator whose graph sets variables before the first run."""
LARGE_OPTIONS = "large_custom_options"
"""What custom options behind the flatbuffer are carried as; written anew they move into it."""
CONNECTIONS = frozenset({"opcode_index", "inputs", "outputs", "intermediates"})


def read_operator_code(table: Table) -> OperatorCode:
    """An OperatorCode table; the number stands in one of two fields, the old one-byte one or the new one."""
    old, new = table.get("deprecated_builtin_code", 0), table.get("builtin_code", 0)
    code = min(old, new) if min(old, new) < 0 else max(old, new)
    custom = table.get("custom_code")
    name = OPERATORS.get(code, f"BUILTIN_{code}")
    if code == CUSTOM and custom is not None:
        name = f"{CUSTOM_PREFIX}{custom}"
    return OperatorCode(name, code, table.get("version", 1), custom, table)


def read_node(
    table: Table, index: int, codes: Sequence[OperatorCode], tensors: Sequence[Tensor], data: Array
) -> Node:
    """An Operator table, with the tensors that it connects."""
    code = pick(codes, table.get("opcode_index", 0), "operator code")
    inputs = [None if i == -1 else pick(tensors, i, "tensor") for i in indices_of(table, "inputs")]
    outputs = [pick(tensors, i, "tensor") for i in indices_of(table, "outputs")]
    fields = {key: value for key, value in table.items() if key not in CONNECTIONS}
    carried: dict[str, Any] = {"operator_code": code}
    if "intermediates" in table:
        carried["intermediates"] = [pick(tensors, i, "tensor") for i in indices_of(table, "intermediates")]
    if fields.get("large_custom_options_offset", 0) > 1:
        carried[LARGE_OPTIONS] = _large_options(fields, data)
    op = _read_op(code, fields, carried, outputs)
    op.check_arity(inputs)
    op = op.with_types([None if t is None else t.type for t in inputs], [t.type for t in outputs])
    node = Node(op, inputs, outputs, index, carried=carried)
    for number, tensor in enumerate(outputs):
        writer = node if tensor in outputs[:number] else tensor.producer
        if writer is not None:
            raise Damage(f"{code.name} writes '{tensor.name}', as operator {writer.index} does already")
    return node


def _read_op(code: OperatorCode, fields: Table, carried: dict[str, Any], outputs: list[Tensor]) -> Op:
    cls = REGISTRY.get(code.name)
    if cls is None:
        types = tuple(tensor.type for tensor in outputs)
        return Opaque(code.code, code.name, types, code.custom_code, fields)
    if not outputs:
        raise Damage(f"{code.name} has no outputs, expected at least one")
    table = None
    if cls.options is not None:
        name, tag = tag_of(cls.options)
        found = fields.get(f"{name}_type", 0)
        table = fields.pop(name, None)
        if table is not None:
            del fields[f"{name}_type"]
        if table is not None and found != tag:
            union = "BuiltinOptions" if name == "builtin_options" else "BuiltinOptions2"
            given = UNIONS[union].get(found, f"options of type {found}")
            raise Damage(f"{code.name} has {given}, expected {cls.options}")
    op, rest = read_options(cls, table)
    if "custom_options" in fields and hasattr(op, "custom_options"):
        given_options: dict[str, Any] = {"custom_options": fields["custom_options"].tobytes()}
        op = replace(op, **given_options)
    if cls.options is not None and (rest is None or rest):
        carried["options"] = rest
    if fields:
        carried["fields"] = fields
    return op


def _large_options(fields: Table, data: Array) -> Array:
    offset, size = fields["large_custom_options_offset"], fields.get("large_custom_options_size", 0)
    if offset + size > data.size:
        raise Damage(f"custom options lie at bytes {offset} to {offset + size}, the file has {data.size}")
    return data[offset : offset + size]


def sort_nodes(graph: Graph) -> bool:
    """Put nodes into an order in which they can run, stably; False if the file's order was one."""
    order = in_order(graph.nodes)
    if order == graph.nodes:
        return False
    graph.nodes = order
    return True


def link_graphs(graphs: Sequence[Graph]) -> None:
    """Let operators refer to the graphs that they name by number."""
    for graph in graphs:
        for node in graph.nodes:
            if isinstance(node.op, WithGraphs):
                node.op = node.op.linked(graphs)
            elif node.op.name == CALL_ONCE:
                options = node.op.fields.get("builtin_options") or {}
                graph_number = options.get("init_subgraph_index", 0)
                node.op = replace(node.op, once=pick(graphs, graph_number, "subgraph"))
    _require_an_end(graphs)


def _require_an_end(graphs: Sequence[Graph]) -> None:
    """Refuse graphs that run themselves."""
    inner = {
        graph: [one for node in graph.nodes if isinstance(node.op, WithGraphs) for one in node.op.graphs]
        for graph in graphs
    }
    while inner:
        ending = [graph for graph, runs in inner.items() if not any(one in inner for one in runs)]
        if not ending:
            raise Damage(f"subgraph '{_one_of_a_circle(inner).name}' runs itself, and would never end")
        for graph in ending:
            del inner[graph]


def _one_of_a_circle(inner: Mapping[Graph, Sequence[Graph]]) -> Graph:
    """Graphs that all run others of these lead to one that runs itself."""
    seen: set[Graph] = set()
    graph = next(iter(inner))
    while graph not in seen:
        seen.add(graph)
        graph = next(one for one in inner[graph] if one in inner)
    return graph


def write_node(
    node: Node, code: int, index: Callable[[Tensor | None], int], graphs: Sequence[Graph] = ()
) -> Table:
    """The Operator table of a node; `graphs` are the module's."""
    op: Op = node.op
    if isinstance(op, WithGraphs):
        op = op.numbered(graphs)
    table: Table = dict(op.fields if isinstance(op, Opaque) else node.carried.get("fields", {}))
    table["opcode_index"] = code
    table["inputs"] = np.array([index(tensor) for tensor in node.inputs], np.int32)
    table["outputs"] = np.array([index(tensor) for tensor in node.outputs], np.int32)
    if LARGE_OPTIONS in node.carried:
        table[LARGE_OPTIONS] = node.carried[LARGE_OPTIONS]
    custom_options: Any = getattr(op, "custom_options", None)
    if custom_options is not None:
        table["custom_options"] = np.frombuffer(custom_options, np.uint8)
    if "intermediates" in node.carried:
        indices = [index(tensor) for tensor in node.carried["intermediates"]]
        table["intermediates"] = np.array(indices, np.int32)
    rest = node.carried.get("options", {})
    if op.options is not None and not isinstance(op, Opaque) and not (rest is None and is_default(op)):
        name, tag = tag_of(op.options)
        table[f"{name}_type"] = tag
        table[name] = write_options(op, rest)
    return table


def write_operator_code(code: OperatorCode) -> Table:
    """The OperatorCode table: as loaded, or with the number in both fields."""
    if code.fields:
        return code.fields
    return {
        "deprecated_builtin_code": min(code.code, PLACEHOLDER),
        "builtin_code": code.code,
        "version": code.version,
        "custom_code": code.custom_code,
    }
