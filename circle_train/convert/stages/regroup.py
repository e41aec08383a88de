"""How RESHAPE is told of another order of axes: which groups of axes become which."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from circle_train.convert.building.sizes import Size, worlds
from circle_train.convert.stages.movement import Shuffled, inverse, moves
from circle_train.ir import Node

if TYPE_CHECKING:
    from circle_train.convert.stages.layout import Layout


@moves("RESHAPE")
def reshape(layout: Layout, node: Node) -> bool:
    """Splits, merges, drops and adds axes where the merged ones lie next to each other."""
    source, target = node.inputs[0], node.outputs[0]
    if source is None or source.is_constant or not (source.type.is_static and target.type.is_static):
        return False
    stored = layout.where(source)
    if stored.order == tuple(range(len(stored.order))):
        return False
    old, new = layout.old.shape(source), layout.old.shape(target)
    groups = aligned(old, new, layout.b.count)
    if groups is None:
        return False
    lying = sorted((g for g in groups if g[0]), key=lambda g: min(stored.order[axis] for axis in g[0]))
    heavy = [stored.order[axis] for g in lying for axis in g[0]]
    lies = stored.tensor
    if heavy != sorted(heavy):
        if _shuffling(layout, node, groups, old):
            return True
        sequence = _with_ones([axis for g in lying for axis in g[0]], len(old))
        lies = layout.ordered(source, inverse(sequence))
    axes = _with_ones([axis for g in lying for axis in g[1]], len(new))
    dims = [new[axis] for axis in axes]
    if not layout.b.can_reshape(lies, dims):
        return False
    layout.alias(target, layout.b.reshape(lies, dims), inverse(axes))
    return True


def aligned(old: Sequence[int], new: Sequence[int], count: int) -> list[tuple[list[int], list[int]]] | None:
    """Which axes (of size other than 1) become which, as groups of equal products in every world."""
    first = [axis for axis, n in enumerate(old) if n != 1 or isinstance(n, Size)]
    second = [axis for axis, n in enumerate(new) if n != 1 or isinstance(n, Size)]
    groups = []
    while first or second:
        if not first or not second:
            return None
        a, z = [first.pop(0)], [second.pop(0)]
        one, two = worlds(old[a[0]], count), worlds(new[z[0]], count)
        while one != two:
            rest, axes, sizes = (first, a, old) if one[0] < two[0] else (second, z, new)
            if not rest:
                return None
            axes.append(rest.pop(0))
            factor = worlds(sizes[axes[-1]], count)
            if axes is a:
                one = tuple(p * f for p, f in zip(one, factor, strict=True))
            else:
                two = tuple(p * f for p, f in zip(two, factor, strict=True))
        groups.append((a, z))
    return groups


def _with_ones(axes: list[int], rank: int) -> list[int]:
    """The axes with those of size 1 put before the one that they precede; the first, which may be a batch, in front."""
    result = list(axes)
    for axis in reversed(range(rank)):
        if axis == 0 and axis not in result:
            result.insert(0, axis)
        elif axis not in result:
            after = next((other for other in range(axis + 1, rank) if other in result), None)
            result.insert(len(result) if after is None else result.index(after), axis)
    return result


def _shuffling(
    layout: Layout, node: Node, groups: list[tuple[list[int], list[int]]], old: Sequence[int]
) -> bool:
    """An image flattened for dense layers: flattened as it lies, the weights shuffled instead."""
    source, target = node.inputs[0], node.outputs[0]
    assert source is not None
    users = layout.old.graph.readers(target)
    dense = all(n.op.name == "FULLY_CONNECTED" and n.inputs[0] is target for n in users)
    dense = dense and all(n.inputs[1] is not None and n.inputs[1].is_constant for n in users)
    if target.type.rank != 2 or not users or not dense or target in layout.old.graph.outputs or not groups:
        return False
    stored, (axes, made) = layout.where(source), groups[-1]
    others = [stored.order[axis] for group in groups[:-1] for axis in group[0]]
    lying = sorted(axes, key=lambda axis: stored.order[axis])
    if made != [1] or any(isinstance(old[axis], Size) for axis in axes):
        return False
    if others != sorted(others) or (others and max(others) > stored.order[lying[0]]):
        return False
    new = layout.old.shape(target)
    layout.alias(target, layout.b.reshape(stored.tensor, new), (0, 1))
    layout.shuffled[target] = Shuffled(tuple(int(old[a]) for a in axes), tuple(axes.index(a) for a in lying))
    return True
