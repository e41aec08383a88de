"""Graph -> graph, one stage a file; the pipelines are lists, the graph is verified between stages."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from circle_train.ir import Graph
from circle_train.ir.verify import verify
from circle_train.ops.sweeps import recognise_sweeps
from circle_train.passes.batch import Shapes, batch_in, set_batch
from circle_train.passes.control.subgraphs import decompose, prepare_subgraphs, write_out
from circle_train.passes.control.variables import begin_each_sample, lower_variables
from circle_train.passes.dead import drop_dead_nodes
from circle_train.passes.dropout import refuse_draws, tell_draws_apart
from circle_train.passes.fold import fold_integers
from circle_train.passes.integers.as_stored import Stored, hold_stored
from circle_train.passes.integers.four_bits import unpack_four_bits
from circle_train.passes.integers.hybrid import multiply_in_bytes
from circle_train.passes.integers.masters import decode_weights, make_float_masters, widen_float16
from circle_train.passes.integers.on_grid import learn_on_grid
from circle_train.passes.integers.quantized import run_quantized
from circle_train.passes.integers.straight_through import learn_through_rounding
from circle_train.passes.masks import add_masks
from circle_train.passes.order import sort_topologically
from circle_train.passes.shared import settle_shared_weights
from circle_train.passes.states import reset_states

Pass = Callable[[Graph], None]


def before_training(sizes: int | Shapes | None, stored: Sequence[Stored] = ()) -> list[Pass]:
    """What makes a loaded graph ready to be differentiated or run; `sizes` are inputs' shapes, or a batch, None the file's.

    With `stored` it is only run: in integers, these.
    """
    return [
        *_before([decode_weights]),
        partial(hold_stored, weights=stored) if stored else learn_on_grid,
        widen_float16,
        settle_shared_weights,
        lambda graph: begin_each_sample(graph, batch_in(sizes)),
        lambda graph: set_batch(graph, sizes),
        write_out,
        learn_through_rounding,
        fold_integers,
        add_masks,
        drop_dead_nodes,
    ]


def before_inference() -> list[Pass]:
    """The same without a batch size: it comes with the data. Weights in integers are multiplied as such."""
    return [*_before([multiply_in_bytes, decode_weights]), widen_float16]


def _before(of_integer_weights: Sequence[Pass]) -> list[Pass]:
    return [
        decompose,
        recognise_sweeps,
        lower_variables,
        tell_draws_apart,
        sort_topologically,
        drop_dead_nodes,
        reset_states,
        unpack_four_bits,
        make_float_masters,
        *of_integer_weights,
        run_quantized,
        lambda graph: prepare_subgraphs(graph, lambda part: _prepare(part, of_integer_weights)),
    ]


def _prepare(graph: Graph, of_integer_weights: Sequence[Pass]) -> None:
    """A graph that an operator runs."""
    refuse_draws(graph)
    run([*_before(of_integer_weights), widen_float16], graph)


def run(passes: list[Pass], graph: Graph) -> Graph:
    """Apply the passes in order, verifying after each."""
    for apply in passes:
        apply(graph)
        verify(graph)
    return graph
