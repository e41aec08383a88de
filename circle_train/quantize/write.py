"""The graph in integers: tensors with scales in the place of floats, conversions where the two meet."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from circle_train.ir import DType, Graph, Node, Quantization, Tensor, TensorType
from circle_train.ir.tensor_type import Array
from circle_train.ops.numeric.quantize import Dequantize, Quantize, dequantize
from circle_train.quantize.bias import shift
from circle_train.quantize.plan import Plan, facts_of, is_real, places_of, weights_of
from circle_train.quantize.scales import constant_in, for_bias, product, symmetric

BIASES = {DType.INT8: DType.INT32, DType.INT16: DType.INT64}


class Writer:
    """Writes a plan into its graph."""

    def __init__(self, plan: Plan, means: Mapping[Tensor, Array]) -> None:
        self.plan, self.graph, self.dtype, self.means = plan, plan.graph, plan.dtype, means
        self.nodes: list[Node] = []
        self.twins: dict[Tensor, Tensor] = {}
        """In integers."""
        self.reals: set[Tensor] = set()
        """Floats that are there too."""
        self.weights: dict[tuple[Any, ...], Tensor] = {}

    def write(self) -> dict[Tensor, Tensor]:
        """Rewrite the graph; what became of its inputs and outputs."""
        graph, ends = self.graph, self.plan.ends
        for tensor in graph.inputs:
            if tensor in ends:
                self.twin(tensor)
            else:
                self.reals.add(tensor)
        for node in graph.nodes:
            if node in self.plan.nodes:
                self._in_integers(node)
            else:
                self._in_floats(node)
        for tensor in graph.outputs:
            self.stored(tensor) if tensor in ends else self.real(tensor)
        moved = {tensor: self.twins[tensor] for tensor in ends}
        old = list(graph.inputs), list(graph.outputs)
        graph.nodes = self.nodes
        graph.inputs, graph.outputs = ([moved.get(tensor, tensor) for tensor in group] for group in old)
        self._name()
        return moved

    def twin(self, tensor: Tensor) -> Tensor:
        """The tensor in integers, of the plan's scale."""
        if tensor not in self.twins:
            made = Tensor(tensor.name, TensorType(self.dtype, tensor.shape))
            made.quantization, made.shape_signature = self.plan.scale_of(tensor), tensor.shape_signature
            self.twins[tensor] = made
        return self.twins[tensor]

    def stored(self, tensor: Tensor) -> Tensor:
        """The same, made where it is not there yet."""
        if tensor not in self.twins:
            if tensor.is_constant:
                scale = self.plan.scale_of(tensor)
                self.twins[tensor] = constant_in(tensor.data, tensor.name, self.dtype, scale)
            else:
                self.nodes.append(Node(Quantize(), [tensor], [self.twin(tensor)]))
        return self.twins[tensor]

    def real(self, tensor: Tensor) -> Tensor:
        """The tensor in floats, made where it is not there yet."""
        if tensor in self.twins and tensor not in self.reals and not tensor.is_constant:
            self.nodes.append(Node(Dequantize(), [self.twins[tensor]], [tensor]))
            self.reals.add(tensor)
        return tensor

    def _in_floats(self, node: Node) -> None:
        for tensor in node.inputs:
            if tensor is not None:
                self.real(tensor)
        self.reals.update(node.outputs)
        self.nodes.append(node)

    def _in_integers(self, node: Node) -> None:
        facts = facts_of(node)
        inputs = list(node.inputs)
        for place in places_of(node):
            tensor = inputs[place]
            assert tensor is not None
            inputs[place] = self.stored(tensor)
            if (node, place) in self.plan.apart:
                inputs[place] = self._rescaled(tensor, node)
        if weights_of(node):
            self._weigh(node, inputs)
        outputs = node.outputs if facts.makes_integers else [self.twin(t) for t in node.outputs]
        carried = {key: value for key, value in node.carried.items() if key != "operator_code"}
        op = replace(node.op, **facts.options)
        self.nodes.append(Node(op, inputs, list(outputs), node.index, carried=carried))

    def _rescaled(self, tensor: Tensor, node: Node) -> Tensor:
        """What has a scale of its own in that of the node's output."""
        stored = self.stored(tensor)
        scale = self.plan.scale_of(node.outputs[0])
        if tensor.is_constant:
            return constant_in(tensor.data, tensor.name, self.dtype, scale)
        if stored.quantization == scale:
            return stored
        made = Tensor(f"{tensor.name}:rescaled{len(self.nodes)}", stored.type, quantization=scale)
        self.nodes.append(Node(Quantize(), [stored], [made]))
        return made

    def _weigh(self, node: Node, inputs: list[Tensor | None]) -> None:
        """Weights in 8 bits, and the bias in units of their products."""
        (place, axis), *others = weights_of(node).items()
        assert not others
        data, w = node.inputs[places_of(node)[0]], node.inputs[place]
        at = next((i for i in range(len(inputs)) if node.op.input_name(i) == facts_of(node).bias), None)
        bias = inputs[at] if at is not None else None
        assert data is not None and w is not None
        x = self.plan.scale_of(data)
        scale = symmetric(w.data, axis, for_bias(None if bias is None else bias.data, x))
        inputs[place] = stored = self._weights(w, scale)
        if at is not None and bias is not None:
            values = bias.data.astype(np.float64)
            if data in self.means:
                error = w.data - dequantize(stored.data, scale)
                values = values + shift(node, place, error, self.means[data], at).reshape(values.shape)
            inputs[at] = constant_in(values, bias.name, BIASES[self.dtype], product(x, scale))

    def _weights(self, w: Tensor, scale: Any) -> Tensor:
        key = w.buffer, w.shape, scale
        if key not in self.weights:
            self.weights[key] = constant_in(w.data, w.name, DType.INT8, scale)
        return self.weights[key]

    def _name(self) -> None:
        """No two tensors of one name: floats beside their integers keep it."""
        taken = {tensor.name for tensor in (*self.graph.inputs, *self.graph.outputs)}
        ends = {*self.graph.inputs, *self.graph.outputs}
        for tensor in sorted(self.graph.all_tensors(), key=lambda t: not is_real(t)):
            if tensor in ends:
                continue
            name, number = tensor.name, 0
            while name in taken:
                number += 1
                name = f"{tensor.name}:{tensor.dtype.name.lower()}{number if number > 1 else ''}"
            tensor.name = name
            taken.add(name)


def as_unsigned(graph: Graph, ends: Mapping[Tensor, Tensor]) -> dict[Tensor, Tensor]:
    """Inputs and outputs as bytes from 0 to 255, with conversions behind and before; what became of them."""
    moved: dict[Tensor, Tensor] = {}
    for end, inner in ends.items():
        scale = inner.quantization
        assert scale is not None
        outer = Tensor(inner.name, TensorType(DType.UINT8, inner.shape))
        outer.shape_signature = inner.shape_signature
        outer.quantization = Quantization(scale.scale, tuple(zero + 128 for zero in scale.zero_point))
        inner.name = f"{inner.name}:int8"
        moved[end] = outer
        if inner in graph.inputs:
            graph.insert(Node(Quantize(), [outer], [inner]))
        else:
            graph.append(Node(Quantize(), [inner], [outer]))
    known = {ends[end]: outer for end, outer in moved.items()}
    graph.inputs, graph.outputs = (
        [known.get(t, t) for t in group] for group in (graph.inputs, graph.outputs)
    )
    return moved
