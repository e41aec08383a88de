"""Quantisation-aware training: what will be integers is rounded as the shipped model rounds it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from circle_train.ir import Graph, Node, Quantization, Tensor
from circle_train.ops.internal.integers.round_as_shipped import RoundToScale, RoundWeights
from circle_train.record import record


@record
class Rounding:
    """The scales of activations by name, as they ship, and their smallest and largest integers."""

    scales: Mapping[str, Quantization]
    low: int
    high: int

    def as_data(self) -> dict[str, Any]:
        """As a checkpoint holds it."""
        scales = {name: [each.scale[0].hex(), each.zero_point[0]] for name, each in self.scales.items()}
        return {"scales": scales, "low": self.low, "high": self.high}

    @classmethod
    def from_data(cls, data: Mapping[str, Any]) -> Rounding:
        """The same again; ValueError and its kin where it is something else."""
        scales = {
            name: Quantization((float.fromhex(scale),), (int(zero),))
            for name, (scale, zero) in data["scales"].items()
        }
        if not all(0 < each.scale[0] < math.inf for each in scales.values()):
            raise ValueError("a scale is no positive number")
        return cls(scales, int(data["low"]), int(data["high"]))


def round_as_shipped(graph: Graph, rounding: Rounding) -> None:
    """Put the roundings in: behind activations that have a scale, and before weights are used."""
    outputs = set(graph.outputs)
    found = [
        t
        for t in graph.all_tensors()
        if t.name in rounding.scales and t not in outputs and _is_made(t, graph)
    ]
    for tensor in found:
        scale, zero = rounding.scales[tensor.name].scale[0], rounding.scales[tensor.name].zero_point[0]
        op = RoundToScale(scale, float(rounding.low - zero), float(rounding.high - zero))
        _behind(graph, tensor, op)
    weights: dict[tuple[Tensor, int], Tensor] = {}
    for node in list(graph.nodes):
        facts = node.op.in_integers
        for i, w in enumerate(node.inputs if facts is not None else ()):
            axis = facts.weights.get(node.op.input_name(i)) if w is not None else None
            if w is None or axis is None or w.producer is not None or not w.dtype.is_float:
                continue
            if (w, axis) not in weights:
                made = Tensor(f"rounded({w.name})", w.type)
                graph.insert(Node(RoundWeights(axis), [w], [made]), before=node)
                weights[w, axis] = made
            graph.reconnect(node, [weights[w, axis] if j == i else t for j, t in enumerate(node.inputs)])


def _is_made(tensor: Tensor, graph: Graph) -> bool:
    """Whether it holds floats that differ from sample to sample."""
    return tensor.dtype.is_float and (tensor.producer is not None or tensor in graph.inputs)


def _behind(graph: Graph, tensor: Tensor, op: RoundToScale) -> None:
    twin = Tensor(f"rounded({tensor.name})", tensor.type)
    twin.shape_signature = tensor.shape_signature
    readers = graph.readers(tensor)
    if not readers:
        return
    graph.insert(Node(op, [tensor], [twin]), after=tensor.producer)
    for reader in readers:
        graph.reconnect(reader, [twin if t is tensor else t for t in reader.inputs])
