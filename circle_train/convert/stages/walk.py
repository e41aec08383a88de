"""Walks over an ONNX graph and lets each node's handler emit Circle operators; collects every refusal."""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Iterable, Mapping, MutableMapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from circle_train.convert.building.builder import Builder
from circle_train.convert.building.emitter import USUAL
from circle_train.convert.building.foreign import as_foreign
from circle_train.convert.building.provenance import Lineage
from circle_train.convert.building.refusal import Refusal
from circle_train.convert.building.registry import Bundle, Call, Handler, Result, handler_for
from circle_train.convert.onnx_file.elements import NUMPY, element_type, to_array
from circle_train.convert.onnx_file.importer import declared_shapes
from circle_train.convert.onnx_file.messages import Attribute
from circle_train.convert.stages.functions import defaults, expansion, is_defined
from circle_train.convert.stages.names import names_read, sorted_places
from circle_train.convert.stages.written import Written
from circle_train.errors import FOREIGN, DataError, ModelError, shown
from circle_train.ir import Tensor
from circle_train.ir.size import Size
from circle_train.ir.tensor_type import Array

KNOWN = frozenset(NUMPY.values())
VALUES: dict[int, str] = {
    Attribute.FLOAT: "f",
    Attribute.INT: "i",
    Attribute.GRAPH: "g",
    Attribute.FLOATS: "floats",
    Attribute.INTS: "ints",
    Attribute.TENSORS: "tensors",
    Attribute.GRAPHS: "graphs",
}
"""The field that holds an attribute's value."""


@dataclass
class Scope:
    """What names mean at one place: a graph, a branch of it, or the body of a function."""

    values: MutableMapping[str, Tensor | None]
    opsets: dict[str, int]
    attributes: dict[str, Any] = field(default_factory=dict)
    """Of the function call whose body this is."""
    declared: dict[str, tuple[int, ...]] = field(default_factory=dict)
    inside: str = ""
    """Where this lies, for messages."""
    used: set[str] = field(default_factory=set)
    """Names that some node or the graph's outputs read."""


class Walk:
    """One pass over the nodes, in order."""

    def __init__(
        self, builder: Builder, arrays: dict[str, Array], functions: dict[tuple[str, str], Any]
    ) -> None:
        self.b = builder
        self.arrays = arrays
        self.functions = functions
        self.refusals: list[str] = []
        self.blocked: set[str] = set()
        self.culprits: set[str] = set()
        """Symbols in the shapes of what refused nodes read."""
        self.is_unfit = False
        """Whether some node would take its operands if the examples of open sizes were others."""
        self.equations: list[Size] = []
        """What is 0 for such others."""
        self._scopes: list[Scope] = []
        self._written = Written()
        self._named_already: set[Tensor] = set()

    def nodes(self, nodes: Sequence[Any], scope: Scope, outputs: Iterable[str]) -> None:
        """Convert nodes of which these outputs are wanted."""
        self._written.add(len(nodes), len(self._scopes))
        self.b.most += USUAL * len(nodes)
        read = [names_read([node]) for node in nodes]
        scope.used = set(outputs).union(*read)
        self._scopes.append(scope)
        for index in sorted_places(nodes, read):
            self._node(nodes[index], scope, index)
        self._scopes.pop()

    def _node(self, node: Any, scope: Scope, index: int) -> None:
        place = f"{scope.inside}{node.op_type} '{node.name or next(iter(node.output), '')}' (node {index})"
        domain = "" if node.domain == "ai.onnx" else node.domain
        if any(name in self.blocked for name in node.input):
            self.blocked.update(name for name in node.output if name)
            if not self._is_known(node, domain, scope):
                self.refusals.append(
                    f"{place}: Circle has no operator for {domain and domain + '.'}{node.op_type}"
                )
            return
        if node.op_type == "Constant" and len(self._scopes) == 1 and set(node.output) <= self.arrays.keys():
            return
        try:
            results = self._convert(node, domain, scope, place)
        except (Refusal, ModelError, DataError) as error:
            self.is_unfit |= not isinstance(error, Refusal)
            self.equations += getattr(error, "equations", ())
            self._refuse(node, f"{place}: {error}" if str(error) else "", scope)
        except FOREIGN as error:
            self._refuse(
                node,
                f"{place}: its inputs or attributes do not fit together ({type(error).__name__}: {shown(error)})",
                scope,
            )
        else:
            for name, tensor in zip(node.output, results, strict=False):
                if name and tensor is not None:
                    scope.values[name] = self._named(tensor, name)

    def _refuse(self, node: Any, message: str, scope: Scope) -> None:
        """Remember why; nothing where the reason is an earlier node's."""
        if message:
            self.refusals.append(message)
        for name in node.input:
            tensor = scope.values.get(name)
            self.culprits |= set() if tensor is None else self.b.symbols_of(tensor)
        self.blocked.update(name for name in node.output if name)

    def _named(self, tensor: Tensor, name: str) -> Tensor:
        """Called as in the ONNX model, if a node here made it."""
        if tensor.producer is not None and tensor not in self._named_already:
            tensor.name = name
            self._named_already.add(tensor)
        return tensor

    def _is_known(self, node: Any, domain: str, scope: Scope) -> bool:
        opset = scope.opsets.get(domain, 1)
        if handler_for(domain, node.op_type, opset) or (domain, node.op_type) in self.functions:
            return True
        return is_defined(node.op_type, domain)

    def _convert(self, node: Any, domain: str, scope: Scope, place: str) -> Sequence[Tensor | None]:
        attributes = self._attributes(node, scope)
        values = {name: value for name, (value, _) in attributes.items()}
        inputs = [self.lookup(name, scope) for name in node.input]
        opset = scope.opsets.get(domain, 1)
        if (function := self.functions.get((domain, node.op_type))) is not None:
            return self._function(function, inputs, attributes, scope, place)
        handler = handler_for(domain, node.op_type, opset)
        if handler is None:
            protos = {name: proto for name, (_, proto) in attributes.items()}
            body = expansion(node, protos, domain, opset, inputs)
            if body is None:
                foreign = None if domain else as_foreign(Call(node.op_type, self.b, inputs, values, opset))
                if foreign is not None:
                    return [foreign] if isinstance(foreign, Tensor) else list(foreign)
                raise Refusal(f"Circle has no operator for {domain and domain + '.'}{node.op_type}")
            given = {name: (_python(p), p) for name, p in defaults(node.op_type, domain, opset).items()}
            return self._function(body, inputs, given | attributes, scope, place)
        if any(isinstance(tensor, Bundle) for tensor in inputs) and "Sequence" not in node.op_type:
            raise Refusal("it takes a sequence, which Circle has not")
        wanted = [name in scope.used for name in node.output]
        declared = [scope.declared.get(name) for name in node.output]
        call = Call(node.op_type, self.b, inputs, values, opset, declared, len(wanted), wanted, self.branch)
        result = self._handled(handler, call)
        results = [result] if isinstance(result, Tensor) else list(result)
        for tensor, shape in zip(results, declared, strict=False):
            self.b.refine(tensor, shape)
        return results

    def _handled(self, handler: Handler, call: Call) -> Result:
        """What the handler makes of the node; where it refuses, an operator of ours that computes it."""
        try:
            return handler(call)
        except Refusal:
            foreign = as_foreign(call)
            if foreign is None:
                raise
            return foreign

    def lookup(self, name: str, scope: Scope) -> Tensor | None:
        """The tensor of that name; initializers become constants when first used."""
        if not name:
            return None
        if name in scope.values:
            return scope.values[name]
        if name not in self.arrays:
            raise Refusal(
                f"its input '{name}' is produced by no earlier node; the file is damaged or not sorted"
            )
        array = self.arrays[name]
        if array.dtype not in KNOWN:
            raise Refusal(f"its input '{name}' has element type {array.dtype}, which Circle does not compute")
        is_float = array.dtype.kind == "f"
        scope.values[name] = tensor = (
            self.b.parameter(array, Lineage(name)) if is_float else self.b.constant(array)
        )
        if not is_float:
            self.b.stored[tensor] = name
        return tensor

    def _attributes(self, node: Any, scope: Scope) -> dict[str, tuple[Any, Any]]:
        """By name: the Python value and the proto; references to a function's attributes resolved."""
        found = {}
        for attribute in node.attribute:
            if not attribute.ref_attr_name:
                found[attribute.name] = (_python(attribute), attribute)
            elif attribute.ref_attr_name in scope.attributes:
                found[attribute.name] = scope.attributes[attribute.ref_attr_name]
        return found

    def _function(
        self,
        function: Any,
        inputs: Sequence[Tensor | None],
        attributes: dict[str, Any],
        scope: Scope,
        place: str,
    ) -> list[Tensor | None]:
        """The outputs of a function's body; optional ones that it does not make are None."""
        given = {a.name: (_python(a), a) for a in function.attribute_proto} | attributes
        values: dict[str, Tensor | None] = dict.fromkeys(function.input)
        values.update(zip(function.input, inputs, strict=False))
        opsets = {"" if o.domain == "ai.onnx" else o.domain: int(o.version) for o in function.opset_import}
        body = Scope(values, {**scope.opsets, **opsets}, given, {}, f"{place} → ")
        if reasons := self._apart(function.node, body, function.output, set()):
            raise Refusal("; ".join(reason.removeprefix(f"{place} → ") for reason in reasons))
        return [body.values.get(name) for name in function.output]

    def _apart(self, nodes: Any, scope: Scope, outputs: Iterable[str], blocked: set[str]) -> list[str]:
        """Convert the nodes of a body; why some were refused, which its caller tells."""
        count, before, self.blocked = len(self.refusals), self.blocked, blocked
        self.nodes(nodes, scope, outputs)
        self.blocked, reasons = before, self.refusals[count:]
        del self.refusals[count:]
        return reasons

    def branch(
        self, graph: Any, bound: Mapping[str, Tensor] | None = None, inside: Builder | None = None
    ) -> list[Tensor]:
        """The outputs of a graph that is an attribute of the node at hand, its inputs being these."""
        if inside is not None:
            outside, self.b = self.b, inside
            try:
                return self.branch(graph, bound)
            finally:
                self.b = outside
        outer = self._scopes[-1]
        local = {t.name: self.b.constant(to_array(t)) for t in graph.initializer}
        values: MutableMapping[str, Tensor | None] = ChainMap({**local, **(bound or {})}, outer.values)
        scope = Scope(values, outer.opsets, outer.attributes, declared_shapes(graph), outer.inside)
        if reasons := self._apart(graph.node, scope, [info.name for info in graph.output], set(self.blocked)):
            raise Refusal("; ".join(reasons))
        if any(info.name not in scope.values and info.name not in self.arrays for info in graph.output):
            raise Refusal("")
        outputs = [self.lookup(info.name, scope) for info in graph.output]
        return [tensor for tensor in outputs if tensor is not None]


def _python(attribute: Any) -> Any:
    """An attribute's value: numbers, strings, lists of them, arrays, or a GraphProto."""
    if attribute.type == Attribute.TENSOR:
        return None if element_type(attribute.t.data_type) is None else to_array(attribute.t)
    if attribute.type == Attribute.STRING:
        return attribute.s.decode("utf-8", "replace")
    if attribute.type == Attribute.STRINGS:
        return [entry.decode("utf-8", "replace") for entry in attribute.strings]
    if attribute.type not in VALUES:
        raise ValueError(f"attribute '{attribute.name}' is of type {attribute.type}")
    return getattr(attribute, VALUES[attribute.type])
