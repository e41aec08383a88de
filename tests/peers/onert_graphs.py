"""Random graphs of operators that ONERT can train, with shuffled tables, shared and integer constants."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import numpy as np

from circle_train.ir import Graph, Module, Node, Tensor, TensorType
from circle_train.ir.graph import constant
from circle_train.ir.tensor_type import Array, DType
from circle_train.ops import REGISTRY

SHORT, LONG = (1, 4, 10), (25, 60)


class Maker:
    """Grows one graph; every tensor that is no constant has shape 1×width."""

    def __init__(self, seed: int) -> None:
        self.choose = random.Random(seed)
        self.numbers = np.random.default_rng(seed)
        self.tensors: list[Tensor] = []
        self.nodes: list[Node] = []
        self.leaves: list[Tensor] = []
        self.weights: list[Tensor] = []
        self.shapes: dict[int, Tensor] = {}

    def value(self, width: int) -> Tensor:
        return self.keep(Tensor(f"t{len(self.tensors)}", TensorType(DType.FLOAT32, (1, width))))

    def constant(self, array: Array) -> Tensor:
        return self.keep(constant(array, f"c{len(self.tensors)}"))

    def keep(self, tensor: Tensor) -> Tensor:
        self.tensors.append(tensor)
        return tensor

    def node(self, name: str, inputs: Sequence[Tensor | None], width: int, **options: Any) -> Tensor:
        made = Node(REGISTRY[name](**options), list(inputs), [self.value(width)], len(self.nodes))
        made.outputs[0].producer = made
        self.nodes.append(made)
        return made.outputs[0]

    def dense(self, x: Tensor, width: int) -> Tensor:
        """FULLY_CONNECTED, now and then with weights or a bias that another one has too."""
        fits = [w for w in self.weights if w.shape == (width, x.shape[1])]
        biases = [w for w in self.weights if w.shape == (width,)]
        if fits and self.choose.random() < 0.5:
            weights = self.choose.choice(fits)
        else:
            scale = 1 / np.sqrt(x.shape[1])
            weights = self.constant(
                (self.numbers.standard_normal((width, x.shape[1])) * scale).astype(np.float32)
            )
        bias = None
        if self.choose.random() < 0.7:
            fresh = not biases or self.choose.random() < 0.7
            bias = (
                self.constant(self.numbers.standard_normal(width).astype(np.float32))
                if fresh
                else self.choose.choice(biases)
            )
        self.weights += [weights] if bias is None else [weights, bias]
        return self.node("FULLY_CONNECTED", [x, weights, bias], width)

    def grow(self) -> None:
        """Replace a leaf, or two, or add one."""
        x = self.choose.choice(self.leaves)
        width = x.shape[1]
        kind = self.choose.choice(
            ["dense", "dense", "dense", "RELU", "RESHAPE", "PAD", "SOFTMAX", "pair", "branch"]
        )
        partners = [leaf for leaf in self.leaves if leaf is not x and leaf.shape == x.shape]
        y: Tensor | None = None
        if kind == "dense":
            y = self.dense(x, self.choose.choice([width, self.choose.randint(2, 5)]))
        elif kind in ("RELU", "SOFTMAX"):
            y = self.node(kind, [x], width)
        elif kind == "RESHAPE":
            if width not in self.shapes or self.choose.random() < 0.5:
                self.shapes[width] = self.constant(np.array([self.choose.choice([1, -1]), width], np.int32))
            y = self.node(kind, [x, self.shapes[width]], width, new_shape=(1, width))
        elif kind == "PAD" and width < 8:
            before, after = self.choose.randint(0, 1), self.choose.randint(0, 1)
            paddings = self.constant(np.array([[0, 0], [before, after]], np.int32))
            y = self.node(kind, [x, paddings], width + before + after)
        elif kind == "pair" and partners:
            other = self.choose.choice(partners)
            self.leaves.remove(other)
            y = self.node(self.choose.choice(["ADD", "SUB", "MUL"]), [x, other], width)
        elif kind == "branch" and len(self.leaves) < 4:
            self.leaves.append(self.dense(x, width))
        if y is not None:
            self.leaves.remove(x)
            self.leaves.append(y)

    def join(self) -> Tensor:
        """One output of all leaves: ONERT fails on operators whose results nobody reads."""
        while len(self.leaves) > 1:
            a, b, *rest = self.leaves
            b = b if a.shape == b.shape else self.dense(b, a.shape[1])
            self.leaves = [*rest, self.node("ADD", [a, b], a.shape[1])]
        return self.dense(self.leaves[0], self.choose.randint(1, 4))


def random_module(seed: int) -> Module:
    """A model; one in five keeps its tensor table in order, the others have it shuffled."""
    maker = Maker(seed)
    inputs = [maker.value(maker.choose.randint(2, 5)) for _ in range(maker.choose.choice([1, 1, 2, 3]))]
    maker.leaves = list(inputs)
    for _ in range(maker.choose.randint(1, maker.choose.choice([*SHORT, *LONG]))):
        maker.grow()
    output = maker.join()
    for _ in range(maker.choose.choice([0, 0, 1, 5])):
        maker.constant(np.ones(3, np.float32))
    if maker.choose.random() < 0.8:
        maker.choose.shuffle(maker.tensors)
    return Module([Graph("main", inputs, [output], maker.nodes, maker.tensors)])


def random_batch(module: Module, seed: int, batch: int = 1) -> tuple[list[Array], Array]:
    """Inputs and an expected value."""
    numbers = np.random.default_rng([7, seed])
    inputs = [numbers.uniform(0.1, 1, (batch, *t.shape[1:])).astype(np.float32) for t in module.main.inputs]
    return inputs, numbers.standard_normal((batch, *module.main.outputs[0].shape[1:])).astype(np.float32)
