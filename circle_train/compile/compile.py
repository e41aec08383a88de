"""THE MAP: from a model and a config to a program, known whole before the first sample arrives."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from circle_train.backends.base import Backend
from circle_train.compile.asked import (
    choose_outputs,
    find_extra,
    open_shapes,
    refuse_open_shapes,
    refuse_unrunnable,
)
from circle_train.compile.autodiff import add_backward
from circle_train.compile.channels import cut, narrow
from circle_train.compile.loops import learn_through_loops, refuse_budget
from circle_train.compile.memory import plan_memory
from circle_train.compile.prefix import Cut, Keep, find_cut, find_last_cut, keep_in_bytes, separate
from circle_train.compile.program import Draft, Mode, Prefix, Program
from circle_train.errors import ConfigError, ModelError
from circle_train.ir import Graph, Node, StateKey, Tensor, TensorType
from circle_train.ir.verify import verify
from circle_train.losses import Joint, Symbol
from circle_train.losses.unjudged import refuse_whole_numbers, speak_of_unjudged
from circle_train.ops.internal.gradient import Accumulate, GuardFinite, influence
from circle_train.ops.internal.integers.on_grid import OnGrid
from circle_train.passes import pipelines
from circle_train.passes.batch import Shapes, batch_in, set_shapes
from circle_train.passes.batch_norm import normalise_by_batch
from circle_train.passes.bfloat16 import round_activations, round_operands, store_narrow
from circle_train.passes.control.subgraphs import write_out
from circle_train.passes.dead import drop_dead_nodes
from circle_train.passes.dropout import randomise
from circle_train.passes.fold import fold_constants
from circle_train.passes.integers.affine import fold_into_products
from circle_train.passes.integers.as_shipped import Rounding, round_as_shipped
from circle_train.passes.integers.on_grid import grids_of, round_again, round_trained, store_in_bytes
from circle_train.passes.schedule import update_early
from circle_train.settings.config import Activations, BatchNormMode, TrainConfig
from circle_train.settings.parameters import Parameter, choose_trainable, find_parameters, make_states
from circle_train.uncollected import uncollected


@uncollected()
def compile(  # noqa: PLR0913 -- the last two are for programs that stand in for the session's own
    model: Graph,
    config: TrainConfig,
    mode: Mode = Mode.TRAIN,
    sizes: int | Shapes | None = None,
    engine: Backend | None = None,
    share: float = 1.0,
    *,
    keep: Keep | None = None,
    rounding: Rounding | None = None,
) -> Program:
    """Turn a loaded graph into a program; `model` itself is not changed. `sizes` are the inputs' shapes, or a batch size.

    Gradients are those of share · loss. With `keep` the frozen beginning ends where its results can be kept. With `rounding`
    activations and weights are rounded as the shipped model rounds them.
    """
    graph = pipelines.run(pipelines.before_training(sizes), choose_outputs(model.copy(), config.outputs))
    learn_through_loops(graph)
    parameters, trained = choose_parameters(graph, config, len(model.nodes))
    moves = behave_as_in_training(graph, config) if mode.has_backward else []
    if rounding is not None:
        round_as_shipped(graph, rounding)
    draft = begin(graph, config, engine)
    narrow = mode.has_backward and config.activations is Activations.BFLOAT16
    if narrow:
        round_operands(graph, influence(graph, [parameter.tensor for parameter in trained]))
    if mode.has_loss:
        add_losses(draft, config)
    if mode.has_backward:
        gradients = add_gradients(draft, trained, share)
        refuse_budget(graph, config.memory_budget)
        add_updates(graph, config, mode, gradients, moves)
    elif mode is Mode.UPDATE:
        draft = only_updates(graph, config, trained)
    keep_alone(graph, draft.keep)
    batch = batch_of(draft, sizes)
    rounded = round_activations(graph, draft.forward, draft.keep) if narrow else set()
    operators = [*draft.forward, *(node for node in graph.nodes if node.index < 0)]
    moving = *(p.tensor for p in trained if p.trained), *draft.targets
    prefix = separate_prefix(graph, find_beginning(draft, moving, batch, keep), batch, engine)
    grids = grids_of(graph) if mode.has_backward else {}
    join(graph, draft.keep, engine, rounded, grids)
    memory = plan_memory(graph, draft.keep)
    return Program(mode, batch, graph, memory, parameters, draft, operators, prefix, share)


def choose_parameters(
    graph: Graph, config: TrainConfig, operators: int
) -> tuple[list[Parameter], list[Parameter]]:
    """All that a program of this graph holds, with its state, and those of them that are to be trained."""
    found = find_parameters(graph)
    trained = choose_trainable(config.trainable, found, operators, config.frozen)
    round_trained(graph, [parameter.tensor for parameter in trained])
    return make_states(found, config.batch_norm is BatchNormMode.TRAIN), trained


def keep_alone(graph: Graph, kept: list[Tensor]) -> None:
    """What leads to none of these is dropped; from here on the graph is whole."""
    graph.outputs = kept
    drop_dead_nodes(graph)
    verify(graph)


def find_beginning(draft: Draft, moving: Sequence[Tensor], batch: int, keep: Keep | None) -> Cut | None:
    """Where what these influence begins, if samples stay apart before it."""
    if not all(tensor.shape[:1] == (batch,) for tensor in draft.inputs):
        return None
    influenced = influence(draft.graph, moving)
    if keep is None:
        return find_cut(draft.graph, influenced, batch)
    cut = find_last_cut(draft.graph, influenced, batch, keep)
    return None if cut is None else keep_in_bytes(draft.graph, cut)


def join(
    graph: Graph,
    kept: list[Tensor],
    engine: Backend | None,
    rounded: set[Tensor],
    grids: Mapping[Tensor, OnGrid],
) -> None:
    """Let the engine compute together what it can, before and after tensors are stored narrow."""
    if engine is not None:
        engine.fuse(graph, kept)
        verify(graph)
    if rounded or grids:
        store(graph, rounded, grids)
        if engine is not None:
            engine.join_narrow(graph, kept)
            verify(graph)


def batch_of(draft: Draft, sizes: int | Shapes | None) -> int:
    """How many samples: those of the first input that has any, where only shapes say it."""
    return batch_in(sizes) or next((tensor.shape[0] for tensor in draft.inputs if tensor.shape), 1)


def store(graph: Graph, rounded: set[Tensor], grids: Mapping[Tensor, OnGrid]) -> None:
    """Keep what is bfloat16 for the backward pass in half the memory, and what lies on a grid in a quarter."""
    if rounded:
        store_narrow(graph, rounded)
    if grids:
        store_in_bytes(graph, grids)
    verify(graph)


@uncollected()
def compile_inference(
    graph: Graph, shapes: Sequence[tuple[int, ...]], engine: Backend | None = None
) -> Program | None:
    """A forward program for inputs of these shapes; None if some shape depends on the data itself."""
    graph = graph.copy()
    set_shapes(graph, shapes)
    write_out(graph)
    fold_constants(graph)
    drop_dead_nodes(graph)
    if open_shapes(graph):
        return None
    draft = Draft(graph, graph.inputs, graph.outputs, list(graph.nodes))
    if engine is not None:
        fold_into_products(graph)
        engine.recognise(graph, graph.outputs)
        engine.fuse(graph, graph.outputs)
    batch = shapes[0][0] if shapes and shapes[0] else 1
    return Program(Mode.PREDICT, batch, graph, plan_memory(graph, graph.outputs), [], draft, draft.forward)


def behave_as_in_training(graph: Graph, config: TrainConfig) -> list[Node]:
    """Batch statistics and dropout, where asked for, and draws; the nodes that move running statistics, to be run last."""
    moves = normalise_by_batch(graph) if config.batch_norm is BatchNormMode.TRAIN else []
    randomise(graph, config.dropout)
    return moves


def begin(graph: Graph, config: TrainConfig, engine: Backend | None) -> Draft:
    """The forward part, all of it computable and of known shapes."""
    fold_constants(graph)
    refuse_unrunnable(graph)
    refuse_open_shapes(graph)
    extra = find_extra(graph, config.extra_outputs)
    draft = Draft(graph, list(graph.inputs), list(graph.outputs), list(graph.nodes), extra)
    if engine is not None:
        engine.recognise(graph, draft.keep)
    return draft


def separate_prefix(graph: Graph, cut: Cut | None, batch: int, engine: Backend | None) -> Prefix | None:
    """Take the frozen beginning out of the graph, as a program that is run a few samples at a time."""
    if cut is None:
        return None
    part = separate(graph, cut)
    operators = list(part.nodes)
    sources = {t.origin: t for t in part.inputs if t.origin is not None}
    results = dict(zip(cut.frontier, part.outputs, strict=True))
    if engine is not None:
        engine.fuse(part, part.outputs)
        verify(part)
    draft = Draft(part, part.inputs, part.outputs, operators)
    program = Program(Mode.PREDICT, cut.batch, part, plan_memory(part, part.outputs), [], draft, operators)
    lanes = min(engine.threads, batch // cut.batch) if engine is not None else 1
    return Prefix(program, sources, results, lanes)


def add_losses(draft: Draft, config: TrainConfig) -> None:
    """Targets, a loss for each output, and their weighted sum, which is what training minimises."""
    graph, outputs = draft.graph, draft.outputs
    if not outputs:
        raise ModelError("the graph has no outputs: nothing says what to learn; the file is damaged")
    refuse_whole_numbers(outputs)
    found = config.losses_on(outputs)
    speak_of_unjudged(found, outputs)
    draft.targets = [loss.target_of(output) for output, loss in zip(outputs, found, strict=True)]
    graph.inputs.extend(draft.targets)
    if found and isinstance(found[0], Joint):
        draft.losses = [found[0].add_jointly(graph, outputs, draft.targets)]
    else:
        pairs = zip(found, outputs, draft.targets, strict=True)
        draft.losses = [loss.add_to(graph, *pair) for loss, *pair in pairs]
    if len(draft.losses) == 1 and config.loss_weights is None:
        draft.loss = draft.losses[0]
    else:
        draft.loss = _weighted_sum(graph, draft.losses, config.loss_weights)


def _weighted_sum(graph: Graph, losses: Sequence[Tensor], weights: Sequence[float] | None) -> Tensor:
    weights = [1.0] * len(losses) if weights is None else weights
    if len(weights) != len(losses):
        raise ConfigError(
            f"loss_weights: {len(weights)} numbers for {len(losses)} outputs; give one for each output"
        )
    terms = [Symbol(graph, loss).sum() * float(weight) for loss, weight in zip(losses, weights, strict=True)]
    return sum(terms[1:], terms[0]).tensor


def add_gradients(draft: Draft, trained: Sequence[Parameter], share: float) -> dict[Tensor, Tensor]:
    """The guard and the backward nodes; a parameter from which no gradient comes back is not trained."""
    assert draft.loss is not None
    draft.graph.emit_all(GuardFinite(), draft.loss)
    few = narrow(draft.graph, trained)
    gradients = add_backward(draft.graph, draft.loss, [p.tensor for p in trained], share, few)
    for parameter in trained:
        parameter.trained = parameter.tensor in gradients
    return {p.tensor: cut(draft.graph, gradients[p.tensor], p) for p in trained if p.trained}


def add_updates(
    graph: Graph, config: TrainConfig, mode: Mode, gradients: dict[Tensor, Tensor], moves: Sequence[Node]
) -> None:
    """What is done with each gradient as soon as it is there, an optimizer step or a sum for later; statistics move last."""
    round_again(graph)
    if mode is Mode.TRAIN:
        config.rule.add_updates(graph, list(gradients), gradients)
    else:
        for weight, gradient in gradients.items():
            graph.emit_all(Accumulate(), accumulator(weight, gradient.type), gradient)
    update_early(graph)
    graph.append(*moves)


def accumulator(parameter: Tensor, gradient: TensorType) -> Tensor:
    """The state in which a parameter's gradients are summed."""
    assert parameter.state is not None
    name = parameter.state.owner
    return Tensor(f"sum(d({name}))", gradient, state=StateKey("gradient", name))


def only_updates(graph: Graph, config: TrainConfig, trained: Sequence[Parameter]) -> Draft:
    """Replace the graph by updates from the accumulated gradients."""
    graph.nodes, graph.inputs, graph.outputs = [], [], []
    sums = {p.tensor: accumulator(p.tensor, p.learned) for p in trained}
    config.rule.add_updates(graph, list(sums), sums)
    return Draft(graph, [], [], [])
