"""Files made for fewer samples than a batch holds: the batch is run in parts of as many as the file was made for.

Each sample is computed as the file says, by itself; the losses of the parts are those of the whole batch, and their
gradients add up before the weights move. What a batch mixes otherwise is refused by name.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from circle_train.backends.base import Backend
from circle_train.compile.compile import add_losses, compile, compile_inference
from circle_train.compile.prefix import Keep
from circle_train.compile.program import Draft, Mode, Prefix, Program
from circle_train.compile.stored import compile_stored
from circle_train.compile.thrift.budget import indivisible, share_of_loss
from circle_train.compile.thrift.shares import formula
from circle_train.errors import MadeForFewer
from circle_train.ir import Graph, Node, Tensor
from circle_train.passes.batch import Shapes, batch_in, shapes_with
from circle_train.passes.integers.as_shipped import Rounding
from circle_train.passes.integers.as_stored import Stored
from circle_train.settings.config import TrainConfig


def compile_batch(  # noqa: PLR0913 -- compile's
    model: Graph,
    config: TrainConfig,
    mode: Mode,
    sizes: int | Shapes,
    engine: Backend | None = None,
    *,
    keep: Keep | None = None,
    rounding: Rounding | None = None,
    stored: Sequence[Stored] = (),
) -> Program:
    """As `compile`, for any number of samples; a program of parts has a `part`. With `stored`, in these integers."""

    def made(of: Mode, sizes: int | Shapes, share: float = 1.0) -> Program:
        program = compile_stored(model, config, of, sizes, engine, keep, stored) if stored else None
        if program is not None:
            return program
        return compile(model, config, of, sizes, engine, share, keep=keep, rounding=rounding)

    try:
        return made(mode, sizes)
    except MadeForFewer as refusal:
        few, many = _few(model, sizes, refusal)
        keep = None if keep is None else replace(keep, largest=refusal.samples)
        stored = () if mode.has_loss else stored  # its losses are those of the parts
        if mode is Mode.UPDATE:
            return made(mode, few)
        shapes, parts = shapes_with(model, sizes), many // refusal.samples
        within = Mode.ACCUMULATE if mode is Mode.TRAIN else mode
        whole = _Whole(made(within, few, 1 / parts), shapes, refusal)
        if mode.has_loss and (share := whole.add_losses(config)) != whole.part.share:
            whole = _Whole(made(within, few, share), shapes, refusal)
            whole.add_losses(config)
        return whole.program(mode, made(Mode.UPDATE, few) if mode is Mode.TRAIN else None)


def compile_inference_of_parts(
    graph: Graph, shapes: Shapes, engine: Backend | None, refusal: MadeForFewer
) -> Program | None:
    """A forward program for a batch that is run in parts; None if some shape depends on the data itself."""
    few, _ = _few(graph, shapes, refusal)
    part = compile_inference(graph, few, engine)
    return None if part is None else _Whole(part, shapes, refusal).program(Mode.PREDICT)


def parts_of(graph: Graph, sizes: int | Shapes, refusal: MadeForFewer) -> Shapes:
    """The inputs' shapes of a part; what refused the batch is raised where it cannot be taken in equal parts."""
    return _few(graph, sizes, refusal)[0]


def _few(graph: Graph, sizes: int | Shapes, refusal: MadeForFewer) -> tuple[Shapes, int]:
    """The shapes of a part, and how many samples the batch holds."""
    whole, samples = shapes_with(graph, sizes), refusal.samples
    many = batch_in(sizes) or 1
    if samples < 1 or many % samples:
        raise refusal
    grown = [
        shape[:1] == (many,) and shape != tensor.shape
        for shape, tensor in zip(whole, graph.inputs, strict=True)
    ]
    few = [(samples, *shape[1:]) if grows else shape for shape, grows in zip(whole, grown, strict=True)]
    return tuple(few), many


class _Whole:
    """What a program of the whole batch would be fed and read, seen from the program of a part."""

    def __init__(self, part: Program, shapes: Sequence[tuple[int, ...]], refusal: MadeForFewer) -> None:
        self.part, self.refusal, self.samples = part, refusal, refusal.samples
        self.many = batch_in(tuple(shapes)) or 1
        self.twins: dict[Tensor, Tensor] = {}
        for tensor, shape in zip(part.inputs, shapes, strict=True):
            self._twin(tensor, shape)
        self.graph = Graph(part.graph.name, list(self.twins.values()))
        self.graph.append(*map(self._copied, part.draft.forward))
        for tensor in (*part.outputs, *part.extra):
            if tensor not in self.twins or tensor.shape[:1] != (self.samples,):
                raise self._refused(f"'{tensor.name}' of {tensor.type} has no axis of samples")
        self.losses: list[Tensor] = []
        self.loss: Tensor | None = None
        self.targets: list[Tensor] = []

    def add_losses(self, config: TrainConfig) -> float:
        """The losses of the batch; by what a part's is multiplied so that the parts' add up to it."""
        draft, forward = self._draft(list(self.twins.values())), len(self.graph.nodes)
        add_losses(draft, config)
        self.targets, self.losses, self.loss = draft.targets, draft.losses, draft.loss
        part = self.part
        alone = Program(
            part.mode, self.many, self.graph, part.memory, [], draft, list(self.graph.nodes[forward:])
        )
        why = indivisible(config, alone)
        if not why and formula(alone) != formula(part):
            why = "the loss is another formula for fewer samples"
        if why:
            raise self._refused(why)
        return share_of_loss(alone, self.many // self.samples)

    def program(self, mode: Mode, update: Program | None = None) -> Program:
        """Of the whole batch: it names what is fed and read, and has the nodes and the memory of a part."""
        part, twins = self.part, self.twins
        nodes = [*part.graph.nodes, *(update.graph.nodes if update else [])]
        read = [twins[tensor] for tensor in part.inputs if tensor in part.graph.inputs]
        graph = Graph(part.graph.name, [*read, *self.targets], [], nodes)
        draft = self._draft([twins[tensor] for tensor in part.inputs])
        draft.forward = part.draft.forward
        operators = [*part.operators, *(update.operators if update else [])]
        return Program(
            mode, self.many, graph, part.memory, part.parameters, draft, operators, self._prefix(),
            part=part, update=update,
        )  # fmt: skip

    def _draft(self, inputs: list[Tensor]) -> Draft:
        outputs, extra = ([self.twins[t] for t in group] for group in (self.part.outputs, self.part.extra))
        return Draft(self.graph, inputs, outputs, [], extra, self.targets, self.losses, self.loss)

    def _prefix(self) -> Prefix | None:
        """The part's frozen beginning; its results are the batch's."""
        prefix = self.part.prefix
        if prefix is None:
            return None
        parts = self.many // self.samples
        results = {
            replace(t, type=t.type.with_shape((parts * t.shape[0], *t.shape[1:])), producer=None): its
            for t, its in prefix.results.items()
        }
        return replace(
            prefix, sources={self.twins[t]: its for t, its in prefix.sources.items()}, results=results
        )

    def _copied(self, node: Node) -> Node:
        inputs = [None if t is None else self._twin(t) for t in node.inputs]
        return replace(node, inputs=inputs, outputs=[self._twin(t) for t in node.outputs])

    def _twin(self, tensor: Tensor, shape: tuple[int, ...] | None = None) -> Tensor:
        """The tensor of the whole batch; constants and weights are themselves."""
        if tensor.is_constant or tensor.state is not None:
            return tensor
        if tensor not in self.twins:
            has_samples = tensor.shape[:1] == (self.samples,)
            shape = shape or ((self.many, *tensor.shape[1:]) if has_samples else tensor.shape)
            self.twins[tensor] = replace(tensor, type=tensor.type.with_shape(shape), producer=None)
        return self.twins[tensor]

    def _refused(self, why: str) -> MadeForFewer:
        return MadeForFewer(
            f"{self.refusal}; nor can the batch be run in parts of {self.samples}, because {why}"
        )
