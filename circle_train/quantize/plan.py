"""Which operators compute in integers, and which of their tensors share a scale."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from circle_train.ir import DType, Graph, Node, Quantization, Tensor
from circle_train.ops.attributes import Activation
from circle_train.ops.integers import InIntegers, Scales
from circle_train.quantize.scales import affine

Range = tuple[float, float]
UNCLIPPED = (Activation.TANH, Activation.SIGN_BIT)
"""Fused activations that no integer kernel computes."""
EXTREME, LARGE = 1e30, float(1 << 20)
"""What is beyond stands for no number: the padding of a maximum, what a mask is multiplied by; and what stands for it alone."""


class Plan:
    """Of a graph in integers of one type."""

    def __init__(self, graph: Graph, dtype: DType, ends: Iterable[Tensor] = ()) -> None:
        self.graph, self.dtype = graph, dtype
        self.floats: dict[Node, str] = {}
        """Operators that stay float though they compute, and why."""
        self.nodes = self._choose()
        self._first: dict[Tensor, Tensor] = {}
        self.fixed: dict[Tensor, Quantization] = {}
        """By the first of a group."""
        self.apart: set[tuple[Node, int]] = set()
        """Inputs that are brought to another scale."""
        for node in graph.nodes:
            if node in self.nodes:
                self._join(node)
        self.ends = [tensor for tensor in ends if is_real(tensor)]
        """Inputs and outputs of the model that are integers too."""
        self.ranges: dict[Tensor, Range] = {}
        self.floors: dict[Tensor, float] = {}
        """Below what a tensor's numbers are all alike to those that read it."""

    def first(self, tensor: Tensor) -> Tensor:
        """Who stands for all that share the tensor's scale."""
        while tensor in self._first:
            tensor = self._first[tensor]
        return tensor

    @property
    def observed(self) -> list[Tensor]:
        """Tensors whose range must be known: all that bring a scale of their own."""
        kept = {out for node in self.nodes if self._says_nothing_new(node) for out in node.outputs}
        return [t for t in self.activations if t not in kept and self.first(t) not in self.fixed]

    def _says_nothing_new(self, node: Node) -> bool:
        """Whether its outputs hold what its inputs hold: a maximum's padding is no number of theirs."""
        scales = facts_of(node).scales
        together = not any((node, place) in self.apart for place in places_of(node))
        return scales is Scales.KEPT or (scales is Scales.ONE and together)

    @property
    def weighed(self) -> list[Tensor]:
        """Activations that meet weights."""
        met = (data_of(node)[0] for node in self.nodes if facts_of(node).bias)
        return [tensor for tensor in dict.fromkeys(met) if not tensor.is_constant]

    @property
    def activations(self) -> list[Tensor]:
        """Whatever has a scale and is no constant."""
        met = dict.fromkeys(t for node in self.nodes for t in (*data_of(node), *node.outputs))
        return [t for t in dict.fromkeys([*met, *self.ends]) if is_real(t) and not t.is_constant]

    def know(self, scales: Mapping[str, Quantization]) -> None:
        """Scales that are decided, by tensors' names."""
        for tensor in self.activations:
            if tensor.name in scales:
                self.fixed.setdefault(self.first(tensor), scales[tensor.name])

    def fix(self, tensor: Tensor, quantization: Quantization) -> None:
        """Give the tensor, and what only moves its numbers, this scale; not where it shares one with others."""
        first = self.first(tensor)
        shared = (
            facts_of(node).scales is Scales.ONE and any(self.first(t) is first for t in data_of(node))
            for node in self.nodes
        )
        if first not in self.fixed and not any(shared):
            self.fixed[first] = quantization

    def take(self, ranges: Mapping[Tensor, Range]) -> None:
        """What was observed, and constants; groups cover all of their members."""
        constants = {
            tensor: _range_of(tensor, self.floors.get(tensor))
            for node in self.nodes
            for tensor in data_of(node)
            if tensor.is_constant and is_real(tensor) and not _only_fills(node, tensor)
        }
        for tensor, (low, high) in {**constants, **ranges}.items():
            first = self.first(tensor)
            known = self.ranges.get(first, (0.0, 0.0))
            self.ranges[first] = min(max(low, self.floors.get(tensor, low)), known[0]), max(high, known[1])

    def scale_of(self, tensor: Tensor) -> Quantization:
        """Of an activation."""
        first = self.first(tensor)
        return self.fixed.get(first) or affine(*self.ranges.get(first, (0.0, 0.0)), self.dtype)

    def _choose(self) -> dict[Node, None]:
        """Those that compute in integers, and what only moves numbers between them."""
        able: dict[Node, None] = {}
        for node in self.graph.nodes:
            why = _obstacle(node, self.dtype)
            if why is None:
                able[node] = None
            elif why:
                self.floats[node] = why
        chosen = {node: None for node in able if facts_of(node).scales is Scales.OWN}
        waiting = list(chosen)
        while waiting:
            for other in self._neighbours(waiting.pop()):
                if other in able and other not in chosen:
                    chosen[other] = None
                    waiting.append(other)
        return {node: None for node in able if node in chosen}

    def _neighbours(self, node: Node) -> Iterator[Node]:
        for tensor in data_of(node):
            if tensor.producer is not None:
                yield tensor.producer
        for tensor in (*node.outputs, *data_of(node)):
            yield from self.graph.readers(tensor)

    def _join(self, node: Node) -> None:
        """Let the node's tensors share what its kernel wants to be one scale."""
        facts = facts_of(node)
        known = facts.fixed.get(self.dtype)
        if known is not None:
            self.fixed[self.first(node.outputs[0])] = known
        if facts.scales is Scales.OWN:
            return
        head, *others = places_of(node)
        first = node.inputs[head]
        assert first is not None
        if facts.scales is Scales.ONE and self._is_bound(first):
            self.apart.add((node, head))
            first = node.outputs[0]
        for place in others if facts.scales is Scales.ONE else ():
            tensor = node.inputs[place]
            assert tensor is not None
            if self._is_bound(tensor):
                self.apart.add((node, place))
            else:
                self._unite(first, tensor)
        for out in node.outputs:
            self._unite(first, out)

    def _is_bound(self, tensor: Tensor) -> bool:
        return self.first(tensor) in self.fixed

    def _unite(self, one: Tensor, other: Tensor) -> None:
        first, second = self.first(one), self.first(other)
        if first is not second:
            self._first[second] = first


def _only_fills(node: Node, tensor: Tensor) -> bool:
    """Whether it is beyond all numbers where that stands for the outermost step."""
    named = [node.op.input_name(i) for i, t in enumerate(node.inputs) if t is tensor]
    return facts_of(node).filler in named and bool((abs(tensor.data) >= EXTREME).all())


def facts_of(node: Node) -> InIntegers:
    """Of a node that computes in integers."""
    facts: InIntegers | None = node.op.in_integers
    assert facts is not None
    return facts


def places_of(node: Node) -> list[int]:
    """The inputs that are activations."""
    facts = facts_of(node)
    return [i for i, t in enumerate(node.inputs) if t is not None and node.op.input_name(i) in facts.data]


def data_of(node: Node) -> list[Tensor]:
    """The same as tensors."""
    return [tensor for i in places_of(node) if (tensor := node.inputs[i]) is not None]


def is_real(tensor: Tensor) -> bool:
    """Whether it holds floats that may become integers."""
    return tensor.dtype is DType.FLOAT32 and not tensor.is_variable


def weights_of(node: Node) -> dict[int, int | None]:
    """By input: the axis of its scales."""
    facts = facts_of(node)
    named = {i: node.op.input_name(i) for i, t in enumerate(node.inputs) if t is not None}
    return {i: facts.weights[name] for i, name in named.items() if name in facts.weights}


def _obstacle(node: Node, dtype: DType) -> str | None:
    """Why a node stays as it is; "" where it computes no floats or integers already, None where it need not."""
    tensors = [t for t in (*node.inputs, *node.outputs) if t is not None]
    if not any(is_real(tensor) for tensor in tensors) or any(t.quantization for t in tensors):
        return ""
    facts: InIntegers | None = node.op.in_integers
    if facts is None:
        return "LiteRT computes it in float alone"
    if dtype not in facts.types:
        return f"LiteRT has no {dtype.name.lower()} kernel for it"
    clips = facts.scales is not Scales.ONE and not facts.fixed
    if node.op.activation in UNCLIPPED or (node.op.activation and not clips):
        return f"LiteRT has no integer kernel with a fused {node.op.activation.name}"
    data = data_of(node)
    if not data or not all(map(is_real, data)) or all(t is None or t.is_constant for t in node.inputs):
        return "" if facts.scales is not Scales.OWN else "its input is no float"
    if data[0].type.rank > facts.largest_rank:
        return f"its input has {data[0].type.rank} axes"
    weights = [node.inputs[i] for i in weights_of(node)]
    bias = [t for i, t in enumerate(node.inputs) if t is not None and node.op.input_name(i) == facts.bias]
    if not all(t is not None and t.is_constant and is_real(t) for t in (*weights, *bias)):
        return "its weights are no constants"
    return None


def _range_of(tensor: Tensor, floor: float | None) -> Range:
    """Of a constant."""
    values = tensor.data
    if floor is not None:
        values = values.clip(floor)
    some = values[abs(values) < EXTREME]
    low, high = (float(some.min()), float(some.max())) if some.size else (0.0, 0.0)
    if low or high or some.size == values.size:
        return low, high
    return (-LARGE if values.min() < 0 else 0.0), (LARGE if values.max() > 0 else 0.0)
