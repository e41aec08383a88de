"""Programs that train nothing, of models of integers: they compute as the exported file does."""

from __future__ import annotations

from collections.abc import Sequence

from circle_train.backends.base import Backend
from circle_train.compile.asked import choose_outputs
from circle_train.compile.compile import (
    add_losses,
    batch_of,
    begin,
    find_beginning,
    join,
    keep_alone,
    separate_prefix,
)
from circle_train.compile.memory import plan_memory
from circle_train.compile.prefix import Keep
from circle_train.compile.program import Mode, Program
from circle_train.ir import Graph, StateKey, Tensor
from circle_train.passes import pipelines
from circle_train.passes.batch import Shapes
from circle_train.passes.integers.as_stored import Stored, as_learned, as_reals, constants_of
from circle_train.settings.config import TrainConfig
from circle_train.settings.parameters import find_parameters
from circle_train.uncollected import uncollected


@uncollected()
def compile_stored(  # noqa: PLR0913, PLR0917 -- compile's
    model: Graph, config: TrainConfig, mode: Mode, sizes: int | Shapes, engine: Backend | None, keep: Keep | None,
    stored: Sequence[Stored], share: float = 1.0,
) -> Program | None:  # fmt: skip
    """Outputs are the reals that integers stand for; losses are those of training. None: not all weights are found again."""
    graph = pipelines.run(
        pipelines.before_training(sizes, stored), choose_outputs(model.copy(), config.outputs)
    )
    moves = [weight for weight in stored if weight.moves]
    changing = constants_of(graph, [weight for weight in moves if weight.integers is not None])
    floats = give_states(graph, [weight for weight in stored if weight.integers is None])
    if not floats.keys() >= {weight.name for weight in moves if weight.integers is None}:
        return None
    changing = None if changing is None else [*changing, *(floats[w.name] for w in moves if w.name in floats)]
    draft = begin(graph, config, engine)
    real, draft.extra = as_reals(graph, draft.outputs), as_reals(graph, draft.extra)
    draft.forward = list(graph.nodes)
    if mode.has_loss:
        draft.outputs = as_learned(graph, draft.outputs, real)
        add_losses(draft, config)
    draft.outputs = real
    keep_alone(graph, draft.keep)
    batch = batch_of(draft, sizes)
    operators = [*draft.forward, *(node for node in graph.nodes if node.index < 0)]
    cut = None if changing is None else find_beginning(draft, [*changing, *draft.targets], batch, keep)
    prefix = separate_prefix(graph, cut, batch, engine)
    join(graph, draft.keep, engine, set(), {})
    memory = plan_memory(graph, draft.keep)
    return Program(mode, batch, graph, memory, [], draft, operators, prefix, share, stored=stored)


def give_states(graph: Graph, floats: Sequence[Stored]) -> dict[str, Tensor]:
    """Let parameters that are floats live in the session's state, as in the program that trains them; those found by name."""
    names = {(weight.root, weight.readers): weight.name for weight in floats}
    found: dict[str, Tensor] = {}
    for parameter in find_parameters(graph):
        name = names.get((parameter.root, parameter.readers))
        if name is not None and name not in found:
            parameter.tensor.state = StateKey("value", name)
            found[name] = parameter.tensor
    return found
