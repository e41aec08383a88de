"""What compile makes: a graph of forward, backward and update nodes, and where each tensor lies."""

from __future__ import annotations

import enum
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field, replace

from circle_train.compile.memory import MemoryPlan
from circle_train.ir import Graph, Node, Tensor
from circle_train.ir.coded import Coded
from circle_train.ir.mapped import mapped
from circle_train.ops.internal.fused import Fused
from circle_train.ops.internal.update import Update
from circle_train.passes.bfloat16 import is_backward
from circle_train.passes.integers.as_stored import Stored
from circle_train.record import mutable
from circle_train.settings.parameters import Parameter


class Mode(enum.Enum):
    """What a program does with a batch."""

    PREDICT = "predict"
    """Forward only."""
    EVALUATE = "evaluate"
    """Forward and loss."""
    TRAIN = "train"
    """Forward, loss, backward, update."""
    ACCUMULATE = "accumulate"
    """Forward, loss, backward; gradients are added to what is there."""
    UPDATE = "update"
    """An optimizer step on the accumulated gradients."""

    __hash__ = object.__hash__  # an enumeration's own is Python, and each step asks for its program

    @property
    def has_loss(self) -> bool:
        return self in (Mode.EVALUATE, Mode.TRAIN, Mode.ACCUMULATE)

    @property
    def has_backward(self) -> bool:
        return self in (Mode.TRAIN, Mode.ACCUMULATE)


@mutable
class Prefix:
    """The frozen beginning of a program, run for a few samples at a time."""

    program: Program
    sources: dict[Tensor, Tensor]
    """Its inputs, by the inputs of the whole program that they are parts of."""
    results: dict[Tensor, Tensor]
    """Its outputs, by the tensors of the whole program that they are parts of."""
    lanes: int = 1
    """How many parts are run side by side."""


@mutable
class Draft:
    """A program under construction: its graph so far, what will be fed and what will be read."""

    graph: Graph
    inputs: list[Tensor]
    outputs: list[Tensor]
    forward: list[Node]
    """The nodes that compute the outputs, before the engine joins some of them."""
    extra: Sequence[Tensor] = ()
    """Further tensors that are read after a run (see TrainConfig.extra_outputs)."""
    targets: list[Tensor] = field(default_factory=list)
    losses: list[Tensor] = field(default_factory=list)
    """One loss for each output."""
    loss: Tensor | None = None
    """The number (or, unreduced, the numbers) that is minimised."""

    @property
    def keep(self) -> list[Tensor]:
        """What must hold its value until the run is over."""
        return [*self.outputs, *self.extra, *self.losses, *([self.loss] if self.loss is not None else [])]

    def reading(self, graph: Graph, twins: Mapping[Tensor, Tensor]) -> Draft:
        """The same of another graph, in which twins stand for what nodes make."""
        outputs, extra, losses = (
            [twins.get(t, t) for t in g] for g in (self.outputs, self.extra, self.losses)
        )
        loss = None if self.loss is None else twins.get(self.loss, self.loss)
        return replace(self, graph=graph, outputs=outputs, extra=extra, losses=losses, loss=loss)


@mutable
class Program:
    """A compiled graph. Inputs and targets are fed, outputs and losses read after a run."""

    mode: Mode
    batch_size: int
    graph: Graph
    memory: MemoryPlan
    parameters: list[Parameter]
    draft: Draft
    """What is fed and read."""
    operators: list[Node]
    """The nodes before the engine joined some of them: forward, loss, backward, updates."""
    prefix: Prefix | None = None
    """What runs before the graph, which then begins where training does, or where tensors have become small."""
    share: float = 1.0
    """What the loss is multiplied by, where the batch is a part of another."""
    repeats: Sequence[Node] = ()
    """Nodes of the graph that run a second time, so that what they make need not be kept (see train.recompute)."""

    stored: Sequence[Stored] = ()
    """The integers that it computes on, where the model is trained on their grids."""
    part: Program | None = None
    """What runs instead, for a few samples at a time, because the file was made for so few."""
    update: Program | None = None
    """Moves the weights when the gradients of all parts are there."""

    @property
    def inputs(self) -> list[Tensor]:
        return self.draft.inputs

    @property
    def targets(self) -> list[Tensor]:
        return self.draft.targets

    @property
    def outputs(self) -> list[Tensor]:
        return self.draft.outputs

    @property
    def extra(self) -> Sequence[Tensor]:
        return self.draft.extra

    @property
    def losses(self) -> list[Tensor]:
        return self.draft.losses

    @property
    def loss(self) -> Tensor | None:
        return self.draft.loss

    @property
    def forward_nodes(self) -> int:
        """How many of `operators` compute the outputs."""
        return len(self.draft.forward)

    @property
    def arena_bytes(self) -> int:
        """Memory for inputs, activations and gradients."""
        return self.memory.nbytes + (
            self.prefix.lanes * self.prefix.program.arena_bytes if self.prefix else 0
        )

    def in_one_lane(self) -> Program:
        """The same, but the frozen beginning takes its parts one after the other, each on all threads: less memory."""
        prefix = None if self.prefix is None else replace(self.prefix, lanes=1)
        return replace(self, prefix=prefix, part=None if self.part is None else self.part.in_one_lane())

    @property
    def trained(self) -> list[Parameter]:
        return [parameter for parameter in self.parameters if parameter.trained]

    @property
    def flops(self) -> int:
        """Floating point operations of one run."""
        if self.part is not None:
            return self.part.flops * (self.batch_size // self.part.batch_size) + (
                self.update.flops if self.update else 0
            )
        return sum(node.flops for node in self.graph.nodes)

    @property
    def bytes_by_class(self) -> dict[str, int]:
        """What a step works on, without the engine itself: what is allocated for it, and what is mapped from the file.

        `original`: the values that trained parameters had, where the file is in memory and not mapped.
        """
        states = {t.state: t.type.nbytes for t in self.graph.all_tensors() if t.state is not None}
        trained = [p.tensor for p in self.trained]
        return {
            "arena": self.arena_bytes,
            "trained parameters": sum(t.type.nbytes for t in trained),
            "optimizer": sum(nbytes for key, nbytes in states.items() if key.kind != "value"),
            "frozen parameters": sum(lying_bytes(p.tensor) for p in self.parameters if not p.trained),
            "original": sum(
                t.type.nbytes for t in trained if t.buffer is None or mapped(t.buffer.behind) is None
            ),
        }

    @property
    def waiting_bytes(self) -> int:
        """Of the arena, what lives when the backward part begins."""
        if self.part is not None:
            return self.part.waiting_bytes
        nodes = self.graph.nodes
        start = next((i for i, node in enumerate(nodes) if is_backward(node.op)), len(nodes))
        return sum(block.nbytes for block in self.memory.blocks if block.first < start <= block.last)

    @property
    def gradient_bytes(self) -> int:
        """Of the arena, gradients that an update reads."""
        if self.part is not None:
            return self.part.gradient_bytes
        block_of = self.memory.block_of
        moved = [t for node in self.graph.nodes for t in _read_by_update(node) if t in block_of]
        return sum(block.nbytes for block in {block_of[t] for t in moved})

    @property
    def step_bytes(self) -> int:
        """All of that: arena, weights, slots, gradients that wait."""
        return sum(self.bytes_by_class.values())


def lying_bytes(tensor: Tensor) -> int:
    """What a constant that nobody changes takes."""
    return tensor.buffer.stored.nbytes if isinstance(tensor.buffer, Coded) else tensor.type.nbytes


def _read_by_update(node: Node) -> Iterator[Tensor]:
    """The gradients that a node moves weights by, where it does not make them."""
    parts = node.op.parts if isinstance(node.op, Fused) else ()
    weights = [node.inputs[part.inputs[0] or 0] for part in parts if isinstance(part.op, Update)]
    if isinstance(node.op, Update):
        weights = [node.inputs[0]]
    moved = node.outputs if weights else []  # of weights of which a part is moved
    shapes = {w.shape for w in (*weights, *moved) if w is not None}
    yield from (t for t in node.inputs if t is not None and t not in weights and t.shape in shapes)
