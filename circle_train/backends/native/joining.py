"""What is computed together: passes over a program's graph, between differentiation and the memory plan."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from circle_train.backends.native.fusion.attention.attentions import join_attentions
from circle_train.backends.native.fusion.attention.transposes import absorb_transposes
from circle_train.backends.native.fusion.batch_norms import join_batch_norms
from circle_train.backends.native.fusion.chains import join_chains, split_broadcasts
from circle_train.backends.native.fusion.integers import settle, widen_integers
from circle_train.backends.native.fusion.losses import join_losses
from circle_train.backends.native.fusion.masks import keep_bits
from circle_train.backends.native.fusion.narrow import read_narrow, split_widening, write_narrow
from circle_train.backends.native.fusion.norms import join_norms
from circle_train.backends.native.fusion.pads import absorb_pads
from circle_train.backends.native.fusion.patterns import RECOGNISERS
from circle_train.backends.native.fusion.pooled import join_pooled_gradients, join_pools, remember_places
from circle_train.backends.native.fusion.products import extend_forward, extend_input_gradients
from circle_train.backends.native.fusion.recurrences import keep_tapes
from circle_train.backends.native.fusion.rewriter import Rewriter
from circle_train.backends.native.fusion.weights import (
    join_table_gradients,
    join_weight_gradients,
    name_updates,
)
from circle_train.backends.native.fusion.wide_losses import spread_wide_losses
from circle_train.ir import Graph, Tensor

PASSES: tuple[Callable[[Rewriter], None], ...] = (
    widen_integers,
    join_losses,
    absorb_pads,
    remember_places,
    join_batch_norms,
    keep_bits,
    settle,
    join_norms,
    keep_tapes,
    join_attentions,
    absorb_transposes,
    extend_forward,
    join_pools,
    extend_input_gradients,
    join_weight_gradients,
    join_pooled_gradients,
    join_table_gradients,
    name_updates,
    spread_wide_losses,
    split_broadcasts,
    join_chains,
)


def fuse(graph: Graph, keep: Iterable[Tensor]) -> None:
    """Apply every pass."""
    rewriter = Rewriter(graph, keep)
    for apply in PASSES:
        apply(rewriter)


def join_narrow(graph: Graph, keep: Iterable[Tensor]) -> None:
    """Where tensors lie as bfloat16 or bytes: what narrows and widens goes with what it stands beside."""
    rewriter = Rewriter(graph, keep)
    for apply in (read_narrow, write_narrow, split_widening, settle, join_chains):
        apply(rewriter)


def recognise(graph: Graph, keep: Iterable[Tensor]) -> None:
    """Before differentiation: make one op of what files spell out in many."""
    rewriter = Rewriter(graph, keep)
    for apply in RECOGNISERS:
        apply(rewriter)
