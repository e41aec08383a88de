"""Ensembles of trees: all trees are descended at once, a level at a time, by gathering each node's children."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import reduce

import numpy as np

from circle_train.convert.building.refusal import Refusal
from circle_train.convert.building.registry import Call, handles
from circle_train.convert.handlers.learned.scores import (
    ML,
    count,
    doubled,
    labels,
    named,
    numbers,
    rows,
    transformed,
)
from circle_train.ir import DType, Tensor
from circle_train.ir.tensor_type import Array

BRANCHES = {
    "BRANCH_LEQ": "LESS_EQUAL", "BRANCH_LT": "LESS", "BRANCH_GTE": "GREATER_EQUAL", "BRANCH_GT": "GREATER",
    "BRANCH_EQ": "EQUAL", "BRANCH_NEQ": "NOT_EQUAL",
}  # fmt: skip
MEMBER = "BRANCH_MEMBER"
MODES = (*BRANCHES, MEMBER)
"""As the newer operator numbers them."""
AGGREGATES = ("AVERAGE", "SUM", "MIN", "MAX")
TRANSFORMS = ("NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO", "PROBIT")


@dataclass
class Forest:
    """Nodes by number: leaves are their own children."""

    features: Array
    thresholds: Array
    kept: Array
    """Where the branch holds."""
    left: Array
    """Where it does not."""
    roots: Array
    depth: int
    branches: dict[str, Array]
    """The nodes of each kind of question."""
    gaps: Array
    """Whether the branch holds for what is not a number."""
    places: dict[tuple[int, int], int]
    sets: Array | None = None
    """What the nodes that ask for membership compare with, NaN where there is no more."""


@handles("TreeEnsembleRegressor", domain=ML)
def tree_regressor(c: Call) -> Tensor:
    targets, forest, how = int(c.attr("n_targets", 1)), forest_of(c), c.attr("aggregate_function", "SUM")
    values = leaf_values(c, forest, "target", targets, ABSENT.get(how, 0.0))
    return transformed(c, _based(c, _aggregated(c, forest, values, how)))


@handles("TreeEnsemble", domain=ML)
def tree_ensemble(c: Call) -> Tensor:
    """The newer operator of both: leaves have numbers of their own, each speaks of one score."""
    how, inner = AGGREGATES[c.attr("aggregate_function", 1)], len(np.asarray(c.required("nodes_splits")))
    ids, weights = np.asarray(c.required("leaf_targetids")), numbers(c, "leaf_weights")
    forest = _forest_with_leaves(c, inner, len(weights))
    values = np.full((inner + len(weights), int(c.attr("n_targets", 1))), ABSENT.get(how, 0.0), np.float32)
    values[inner + np.arange(len(weights)), ids] = weights
    scores = transformed(c, _aggregated(c, forest, values, how), TRANSFORMS[c.attr("post_transform", 0)])
    return c.b.cast(scores, c.dtype)


ABSENT = {"MIN": np.inf, "MAX": -np.inf}
"""What a leaf says of scores of which it does not speak."""


def _aggregated(c: Call, forest: Forest, values: Array, how: str) -> Tensor:
    """The scores of all trees as one."""
    b, reduced = c.b, {"SUM": "SUM", "AVERAGE": "SUM", "MIN": "REDUCE_MIN", "MAX": "REDUCE_MAX"}.get(how)
    if reduced is None:
        raise Refusal(f"it aggregates by {how}")
    scores = b(reduced, gathered(c, forest, values), b.integers([1]), keep_dims=False)
    if how == "AVERAGE":
        return b("MUL", scores, b.like(scores, 1 / len(forest.roots)))
    if np.isinf(values).any():
        scores = b("SELECT_V2", b("EQUAL", scores, b.like(scores, ABSENT[how])), b.like(scores, 0.0), scores)
    return scores


def _forest_with_leaves(c: Call, inner: int, leaves: int) -> Forest:
    """Questions first, then the leaves."""
    end = np.arange(inner, inner + leaves)

    def children(name: str) -> Array:
        ids, is_leaf = (np.asarray(c.required(f"nodes_{name}{kind}s")) for kind in ("nodeid", "leaf"))
        found = np.concatenate([np.where(is_leaf, ids + inner, ids), end])
        if not ((found >= 0) & (found < inner + leaves)).all():
            raise Refusal("its nodes have children that do not exist: the file is damaged")
        return found

    def with_leaves(values: Array, kind: type = np.int64) -> Array:
        return np.concatenate([values, np.zeros(leaves)]).astype(kind)

    kept, left, roots = children("true"), children("false"), np.asarray(c.required("tree_roots"))
    modes = np.asarray(c.required("nodes_modes")).reshape(-1)
    branches = {MODES[mode]: with_leaves(modes == mode, np.bool_) for mode in np.unique(modes)}
    gaps = np.asarray(c.attr("nodes_missing_value_tracks_true") or np.zeros(inner))
    return Forest(
        with_leaves(np.asarray(c.required("nodes_featureids"))), with_leaves(numbers(c, "nodes_splits"), np.float32),
        kept, left, roots, _depth(kept, left, roots), branches, with_leaves(gaps, np.bool_), {},
        _sets(c, modes, inner + leaves) if MEMBER in branches else None,
    )  # fmt: skip


def _sets(c: Call, modes: Array, nodes: int) -> Array:
    """A row each of the values that nodes ask for; the file separates them by NaN."""
    given = numbers(c, "membership_values")
    found = np.split(given, np.flatnonzero(np.isnan(given)) + 1)
    rows_ = [part[~np.isnan(part)] for part in found]
    made = np.full((nodes, max(map(len, rows_))), np.nan, np.float32)
    for node, row in zip(np.flatnonzero(modes == MODES.index(MEMBER)), rows_, strict=False):
        made[node, : len(row)] = row
    return made


@handles("TreeEnsembleClassifier", domain=ML)
def tree_classifier(c: Call) -> list[Tensor]:
    b, classes, forest = c.b, count(c), forest_of(c)
    spoken = set(np.asarray(c.required("class_ids")).tolist())
    if classes == 2 and len(spoken) == 1:
        return _of_one_score(c, forest, spoken)
    values = leaf_values(c, forest, "class", classes)
    scores = _based(c, b("SUM", gathered(c, forest, values), b.integers([1]), keep_dims=False))
    return [labels(c, _that_are_said(c, forest, scores)), transformed(c, scores)]


def _of_one_score(c: Call, forest: Forest, spoken: set[int]) -> list[Tensor]:
    """Two classes, of which one has scores: probabilities of the second, or numbers around 0."""
    if spoken != {0}:
        raise Refusal("its leaves speak of the second class alone, which runtimes read differently")
    b, probable = c.b, bool((numbers(c, "class_weights") >= 0).all())
    scores = b(
        "SUM", gathered(c, forest, leaf_values(c, forest, "class", 1)), b.integers([1]), keep_dims=False
    )
    scores = _based(c, scores)
    above = b("GREATER", b.reshape(scores, (b.shape(scores)[0],)), b.like(scores, 0.5 if probable else 0.0))
    is_logistic = c.attr("post_transform", "NONE") == "LOGISTIC"
    both = doubled(c, transformed(c, scores) if is_logistic else scores, probable or is_logistic)
    return [named(c, b.cast(above, DType.INT64)), both]


def _that_are_said(c: Call, forest: Forest, scores: Tensor) -> Tensor:
    """Scores among which the largest is looked for: not those of classes of which no leaf that was reached says anything."""
    b, classes = c.b, count(c)
    trees, nodes, ids = (np.asarray(c.required(f"class_{name}")) for name in ("treeids", "nodeids", "ids"))
    says = np.zeros((len(forest.kept), classes), np.float32)
    for tree, node, one in zip(trees, nodes, ids, strict=True):
        says[forest.places[int(tree), int(node)], int(one)] = 1
    leaves = np.flatnonzero(forest.kept == np.arange(len(forest.kept)))
    tree_of = np.asarray(c.required("nodes_treeids"))
    silent = {
        (int(tree_of[leaf]), one) for leaf in leaves for one in np.flatnonzero(says[leaf] == 0).tolist()
    }
    if all(any((int(tree), one) not in silent for tree in np.unique(tree_of)) for one in range(classes)):
        return scores
    said = b("SUM", gathered(c, forest, says), b.integers([1]), keep_dims=False)
    return b(
        "SELECT_V2", b("GREATER", said, b.like(said, 0.0)), scores, b.like(scores, np.finfo(np.float32).min)
    )


def forest_of(c: Call) -> Forest:
    """The nodes of all trees one behind the other."""
    trees, ids = np.asarray(c.required("nodes_treeids")), np.asarray(c.required("nodes_nodeids"))
    modes = [m.decode() if isinstance(m, bytes) else str(m) for m in c.required("nodes_modes")]
    places = {(int(t), int(n)): i for i, (t, n) in enumerate(zip(trees, ids, strict=True))}
    branches = {mode: np.array(modes) == mode for mode in dict.fromkeys(modes) if mode != "LEAF"}
    if not branches.keys() <= BRANCHES.keys():
        raise Refusal(f"its branches are {sorted(branches)}, expected some of {', '.join(BRANCHES)}")
    leaf = np.array([mode == "LEAF" for mode in modes])
    kept, left = (
        np.array(
            [i if leaf[i] else places[int(trees[i]), int(child)] for i, child in enumerate(c.required(name))]
        )
        for name in ("nodes_truenodeids", "nodes_falsenodeids")
    )
    gaps = np.asarray(c.attr("nodes_missing_value_tracks_true") or np.zeros(len(ids)), bool)
    roots = _roots(kept, left, leaf)
    return Forest(
        np.where(leaf, 0, np.asarray(c.required("nodes_featureids"))), numbers(c, "nodes_values"), kept, left, roots,
        _depth(kept, left, roots), branches, gaps & ~leaf, places,
    )  # fmt: skip


def _roots(kept: Array, left: Array, leaf: Array) -> Array:
    """Nodes that are no node's child."""
    is_root = np.ones(len(kept), bool)
    is_root[kept[~leaf]] = is_root[left[~leaf]] = False
    return np.flatnonzero(is_root)


def _depth(kept: Array, left: Array, roots: Array) -> int:
    """How many branches the longest way has."""
    level, depth = roots, 0
    while True:
        inner = level[kept[level] != level]
        if not len(inner):
            return depth
        depth += 1
        level = np.unique(np.concatenate([kept[inner], left[inner]]))
        if depth > len(kept):
            raise Refusal("its trees have circles: the file is damaged")


def leaf_values(c: Call, forest: Forest, kind: str, targets: int, absent: float = 0.0) -> Array:
    """What each node adds to each score; nothing but for leaves."""
    values = np.full((len(forest.kept), targets), absent, np.float32)
    trees, nodes, ids = (np.asarray(c.required(f"{kind}_{name}")) for name in ("treeids", "nodeids", "ids"))
    for tree, node, target, weight in zip(trees, nodes, ids, numbers(c, f"{kind}_weights"), strict=True):
        place = forest.places[int(tree), int(node)], int(target) if targets > 1 else 0
        values[place] = weight if np.isinf(values[place]) else values[place] + weight
    return values


def gathered(c: Call, forest: Forest, values: Array) -> Tensor:
    """What the leaf of every tree adds: samples × trees × scores."""
    b, x = c.b, rows(c)
    samples = b.shape(x)[0]
    begin = b.constant(np.asarray(forest.roots, np.int32).reshape(1, -1))
    at = b("BROADCAST_TO", begin, b.integers([samples, len(forest.roots)]))

    def look_up(table: Array, kind: type = np.int32) -> Tensor:
        return b("GATHER", b.constant(table.astype(kind)), at, axis=0, batch_dims=0)

    for _ in range(forest.depth):
        features = b("GATHER", x, look_up(forest.features), axis=1, batch_dims=1)
        holds = _holds(c, forest, features, look_up)
        if forest.gaps.any():
            is_gap = b("LOGICAL_AND", b("NOT_EQUAL", features, features), look_up(forest.gaps, np.bool_))
            holds = b("LOGICAL_OR", holds, is_gap)
        at = b("SELECT_V2", holds, look_up(forest.kept), look_up(forest.left))
    return b("GATHER", b.constant(values), at, axis=0, batch_dims=0)


def _holds(c: Call, forest: Forest, x: Tensor, look_up: Callable[..., Tensor]) -> Tensor:
    """What the nodes answer; where they ask in several ways, each in its own."""
    b, held = c.b, []
    for name, asks in forest.branches.items():
        if name == MEMBER and forest.sets is not None:
            members = look_up(forest.sets, np.float32)
            one = b.reshape(x, (*b.shape(x), 1))
            holds = b("REDUCE_ANY", b("EQUAL", one, members), b.integers([2]), keep_dims=False)
        else:
            holds = b(BRANCHES[name], x, look_up(forest.thresholds, np.float32))
        held.append(holds if len(forest.branches) == 1 else b("LOGICAL_AND", holds, look_up(asks, np.bool_)))
    return reduce(lambda one, other: b("LOGICAL_OR", one, other), held)


def _based(c: Call, scores: Tensor) -> Tensor:
    base = numbers(c, "base_values")
    return (
        c.b("ADD", scores, c.b.like(scores, base[-1:] if scores.shape[-1] == 1 else base))
        if base.size
        else scores
    )
