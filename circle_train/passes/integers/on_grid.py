"""A model whose weights are integers up to its end, as it is trained: real numbers that lie where the integers lie.

Masters of weights and biases are float32 in real units; every forward pass rounds them, and what operators make, to the file's
grids. Gradients pass the rounding, and are 0 beside a grid's ends and beyond a fused activation. What trains is what the
integers will compute, so that exporting is storing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

import numpy as np

from circle_train.errors import UnsupportedOpError
from circle_train.ir import DType, Graph, Node, Parts, Quantization, Role, Tensor, TensorType, Weight
from circle_train.ir.graph import constant
from circle_train.ops.attributes import Activation
from circle_train.ops.base import Op
from circle_train.ops.internal.integers.on_grid import OnGrid
from circle_train.ops.internal.integers.quantized import Quantized
from circle_train.ops.movement import Movement
from circle_train.ops.numeric.arithmetic import Mul
from circle_train.ops.numeric.quantize import Dequantize, Quantize, dequantize
from circle_train.passes.bfloat16 import LEAST, Form, is_backward, store
from circle_train.passes.dead import drop_dead_nodes
from circle_train.passes.integers.four_bits import LIMITS
from circle_train.passes.integers.rounded import on_grid, rounded
from circle_train.passes.integers.which import BYTES, is_learned_on_grid

SPAN = 127.0
"""Steps of a grid that an operand's largest numbers span."""
WIDEST = 8.0
"""Times its own scale a channel may be counted in: at a rate of 1e-3 an update moves its integers by 1 at most."""


def learn_on_grid(graph: Graph) -> None:
    """Rewrite a graph whose weights are integers up to its end; one that has a head of floats is trained by that."""
    if not is_learned_on_grid(graph):
        return
    grid = Grid(graph)
    for node in list(graph.nodes):
        grid.take(node)
    graph.nodes = grid.nodes
    graph.outputs = [grid.real(t) for t in graph.outputs]
    drop_dead_nodes(graph)


def round_trained(graph: Graph, masters: Iterable[Tensor]) -> None:
    """Let trained weights between floats, which the file holds in integers, be what they will be there."""
    for master in masters:
        root = master.root()
        meaning = root.quantization
        is_stored = root.dtype in (*BYTES, *LIMITS) and root.shape == master.shape
        if master.quantization is not None or meaning is None or not meaning.scale or not is_stored:
            continue
        readers = list(graph.readers(master))
        nodes = rounded(master, root.dtype, meaning)
        for node in nodes:
            graph.insert(node, before=readers[0])
        made = nodes[-1].outputs[0]
        for reader in readers:
            graph.reconnect(reader, [made if t is master else t for t in reader.inputs])


class Grid:
    """The graph as it grows."""

    def __init__(self, graph: Graph) -> None:
        self.nodes: list[Node] = []
        self.reals: dict[Tensor, Tensor] = {}
        self.masters: dict[tuple[object, object], Tensor] = {}
        self.inputs = set(graph.inputs)

    def real(self, tensor: Tensor) -> Tensor:
        return self.reals.get(tensor, tensor)

    def take(self, node: Node) -> None:
        """The node, among reals."""
        op = node.op
        if not isinstance(op, Quantized):
            if isinstance(op, Movement) and any(t in self.reals for t in node.inputs if t is not None):
                self._moved(node)
            else:
                self.nodes.append(node)
            return
        inputs = [
            t if t is None or meaning is None else self._operand(node, i, t, meaning)
            for i, (t, meaning) in enumerate(zip(node.inputs, op.given, strict=True))
        ]
        self._made(node, op, inputs)

    def _moved(self, node: Node) -> None:
        outputs = [self._twin(t) for t in node.outputs]
        inputs = [
            t if t is None or t.dtype not in (*BYTES, DType.INT16) or t.quantization is None
            else self._operand(node, i, t, t.quantization)
            for i, t in enumerate(node.inputs)
        ]  # fmt: skip
        self.nodes.append(replace(node, inputs=inputs, outputs=outputs))

    def _made(self, node: Node, op: Quantized, inputs: list[Tensor | None]) -> None:
        outputs, behind = [], []
        inner: Op = op.of
        clip = inner.activation
        if clip.bounds[0] is not None:
            inner = replace(inner, fused_activation_function=Activation.NONE)  # type: ignore[call-arg]
        for tensor, (dtype, meaning) in zip(node.outputs, op.made, strict=True):
            if meaning is None:
                outputs.append(tensor)
                continue
            if len({*meaning.scale}) > 1:
                raise UnsupportedOpError(
                    f"{node}: '{tensor.name}' ({tensor.type}) has {len(meaning.scale)} scales along dimension {meaning.axis}, "
                    "and an activation is trained on one grid; export the model with one scale for it"
                )
            real = self._twin(tensor)
            raw = Tensor(f"{tensor.name}:real", real.type)
            raw.shape_signature = tensor.shape_signature
            grid = on_grid(meaning, dtype, clip)
            if isinstance(inner, Quantize) and inputs[0] is not None:
                raw = inputs[0]
            behind.append(Node(grid, [raw], [real], node.index))
            outputs.append(raw)
        if not isinstance(inner, Quantize):
            self.nodes.append(replace(node, op=inner, inputs=inputs, outputs=outputs))
        self.nodes += behind

    def _twin(self, tensor: Tensor) -> Tensor:
        """The tensor in reals, by the same name."""
        if tensor not in self.reals:
            made = Tensor(tensor.name, TensorType(DType.FLOAT32, tensor.shape))
            made.shape_signature, made.origin = tensor.shape_signature, tensor.origin
            self.reals[tensor] = made
        return self.reals[tensor]

    def _operand(self, node: Node, index: int, tensor: Tensor, meaning: Quantization) -> Tensor:
        if tensor in self.reals:
            return self.reals[tensor]
        if tensor.is_constant:
            return self._constant(node, index, tensor, meaning)
        real = self._twin(tensor)
        stored = Node(Quantized(Dequantize(), (meaning,), ((DType.FLOAT32, None),)), [tensor], [real])
        self.nodes.append(stored)
        return real

    def _constant(self, node: Node, index: int, tensor: Tensor, meaning: Quantization) -> Tensor:
        """The master, on its grid."""
        key = tensor.buffer, meaning
        if key not in self.masters:
            values = np.ascontiguousarray(dequantize(tensor.data, meaning), np.float32)
            values.setflags(write=False)
            master = constant(values, tensor.name)
            master.origin, master.role, master.quantization = tensor, tensor.role, meaning
            if isinstance(node.op, Movement):
                master.role |= Role.GRID
            else:
                master.weight = weight_of(node.op, index, meaning)
            is_stored = tensor.dtype in (*BYTES, DType.INT32, DType.INT64)
            nodes = rounded(master, tensor.root().dtype, meaning) if is_stored else []
            self.nodes += nodes
            self.masters[key] = nodes[-1].outputs[0] if nodes else master
        return self.masters[key]


def store_in_bytes(graph: Graph, grids: Mapping[Tensor, OnGrid]) -> None:
    """What lies on a grid waits for its gradients as the bytes that it stands for; those of the samples are there already."""
    forms = {tensor: in_bytes(grid) for tensor, grid in grids.items()}
    known: dict[Tensor, Tensor] = {}
    for node in graph.nodes:
        source = node.inputs[0] if node.inputs else None
        if isinstance(node.op, Quantized) and isinstance(node.op.of, Dequantize) and source in graph.inputs:
            assert source is not None
            forms[node.outputs[0]] = Quantize(), node.op
            known[node.outputs[0]] = source
    store(graph, forms, known)


def round_again(graph: Graph) -> None:
    """Weights are rounded again where gradients read them: between the two passes only masters are kept.

    To be done before updates are added, which then wait for the second rounding.
    """
    start = next((i for i, node in enumerate(graph.nodes) if is_backward(node.op)), len(graph.nodes))
    makers = _of_weights_alone(graph.nodes[:start])
    twins: dict[Tensor, Tensor] = {}

    def again(tensor: Tensor | None, reader: Node) -> Tensor | None:
        maker = None if tensor is None else makers.get(tensor)
        if tensor is None or maker is None:
            return tensor
        if tensor not in twins:
            inputs = [again(t, reader) for t in maker.inputs]
            twins[tensor] = Tensor(tensor.name, tensor.type)
            graph.insert(Node(maker.op, inputs, [twins[tensor]], maker.index), before=reader)
        return twins[tensor]

    for node in graph.nodes[start:]:
        inputs = [again(tensor, node) for tensor in node.inputs]
        if inputs != node.inputs:
            graph.reconnect(node, inputs)


def _of_weights_alone(nodes: Sequence[Node]) -> dict[Tensor, Node]:
    """What roundings to a grid make of constants, and what those read."""
    if not any(isinstance(node.op, OnGrid) for node in nodes):
        return {}
    found: dict[Tensor, Node] = {}
    for node in nodes:
        known = (t is not None and (t.is_constant or t in found) for t in node.inputs)
        if isinstance(node.op, (OnGrid, Mul)) and all(known):
            found.update(dict.fromkeys(node.outputs, node))
    return found


def grids_of(graph: Graph) -> dict[Tensor, OnGrid]:
    """Tensors of some size, before an engine joins what makes them with other nodes."""
    return {
        node.outputs[0]: node.op
        for node in graph.nodes
        if isinstance(node.op, OnGrid)
        and node.outputs[0].type.size >= LEAST
        and node.inputs[0] is not None
        and not node.inputs[0].is_constant
    }


def in_bytes(grid: OnGrid) -> Form:
    dtype = DType.INT8 if grid.low < 0 else DType.UINT8
    meaning = Quantization((grid.scale,), (int(grid.zero),))
    return (
        Quantized(Quantize(), (None,), ((dtype, meaning),)),
        Quantized(Dequantize(), (meaning,), ((DType.FLOAT32, None),)),
    )


def weight_of(op: Op, index: int, meaning: Quantization) -> Weight:
    """What a weight's steps are counted in: what its grid spans, or less for channels whose own grid spans much less.

    A bias counts as the weight of an input at its own grid's end. What its layer makes has one scale for all channels, so
    that all their biases have one unit.
    """
    assert isinstance(op, Quantized)
    is_bias = op.of.input_name(index) == "b"
    mean = float(np.mean(meaning.scale))
    shares = [1.0 if is_bias or not mean else min(1.0, WIDEST * scale / mean) for scale in meaning.scale]
    parts = Parts(meaning.axis, tuple(shares)) if min(shares) < 1 else None
    return Weight(unit=mean * SPAN * (SPAN if is_bias else 1), parts=parts)
