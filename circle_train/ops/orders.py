"""The arithmetic of orders of axes: a tensor that lies in an order is the transposition, by it, of what lies in memory."""

from __future__ import annotations

from collections.abc import Sequence

Order = tuple[int, ...]


def identity(rank: int) -> Order:
    return tuple(range(rank))


def inverse(order: Sequence[int]) -> Order:
    return tuple(sorted(range(len(order)), key=order.__getitem__))


def reordered(values: Sequence[int], order: Sequence[int]) -> tuple[int, ...]:
    return tuple(values[axis] for axis in order)


def without(order: Order, dropped: Sequence[int]) -> Order:
    """The order of what remains when old axes are dropped."""
    left = [order[axis] for axis in range(len(order)) if axis not in dropped]
    return tuple(sorted(left).index(axis) for axis in left)


def with_ones(axes: Sequence[int], rank: int) -> Order:
    """The axes with those of size 1 put before the one that they precede; the first, which may be a batch, in front."""
    result = list(axes)
    for axis in reversed(range(rank)):
        if axis == 0 and axis not in result:
            result.insert(0, axis)
        elif axis not in result:
            after = next((other for other in range(axis + 1, rank) if other in result), None)
            result.insert(len(result) if after is None else result.index(after), axis)
    return tuple(result)


def aligned(
    old: Sequence[Sequence[int]], new: Sequence[Sequence[int]]
) -> list[tuple[list[int], list[int]]] | None:
    """Which axes become which in a reshape, as groups of equal products; each axis has a size for every case.

    Axes whose size is 1 in all cases belong to no group. The last case says which side goes on.
    """
    first = [axis for axis, sizes in enumerate(old) if any(n != 1 for n in sizes)]
    second = [axis for axis, sizes in enumerate(new) if any(n != 1 for n in sizes)]
    groups = []
    while first or second:
        if not first or not second:
            return None
        a, z = [first.pop(0)], [second.pop(0)]
        one, two = list(old[a[0]]), list(new[z[0]])
        while one != two:
            rest, axes, sizes, product = (first, a, old, one) if one[-1] < two[-1] else (second, z, new, two)
            if not rest:
                return None
            axes.append(rest.pop(0))
            product[:] = (p * n for p, n in zip(product, sizes[axes[-1]], strict=True))
        groups.append((a, z))
    return groups
