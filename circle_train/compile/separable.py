"""Which operators treat every sample of a batch by itself, so that a batch may be taken in parts."""

from __future__ import annotations

from collections.abc import Set

from circle_train.ir import Node, Tensor
from circle_train.ir.blame import Blame


def is_fixed(node: Node, fixed: Set[Tensor]) -> bool:
    """Whether the node reads nothing but constants, weights and what is fixed already."""
    return bool(node.outputs) and not node.op.mutates and all(_is_given(t, fixed) for t in node.inputs)


def is_separable(
    node: Node, whole: Set[Tensor], batch: int, fixed: Set[Tensor] = frozenset(), folded: bool = False
) -> bool:
    """Whether one sample of the outputs depends on that sample of the inputs alone; `whole` tensors have all samples.

    With `folded`, a sample may take several entries of the first axis, as after a reshape from 8×128×256 to 1024×256.
    """
    data = [t for t in node.inputs if t in whole]
    if not data or not all(t in whole or _is_given(t, fixed) for t in node.inputs):
        return False
    sizes = {t.shape[0] if t.shape else 0 for t in (*data, *node.outputs) if t is not None}
    is_view = node.op.view_of is not None
    if not folded or 0 in sizes:
        apart = sizes == {batch}
    else:
        apart = not any(size % batch for size in sizes) and (len(sizes) == 1 or is_view)
    return apart and (is_view or _keeps_apart(node, whole))


def is_of_one(node: Node, whole: Set[Tensor], fixed: Set[Tensor]) -> bool:
    """Whether the node depends on nothing but the one sample that there is, wherever that stands in its tensors."""
    ranked = all(t.type.rank for t in node.outputs)
    return ranked and not node.op.mutates and all(t in whole or _is_given(t, fixed) for t in node.inputs)


def _is_given(tensor: Tensor | None, fixed: Set[Tensor]) -> bool:
    return tensor is None or tensor.is_constant or tensor.state is not None or tensor in fixed


def _keeps_apart(node: Node, whole: Set[Tensor]) -> bool:
    """Whether the first axis of what has samples, and no axis of anything else, comes out as the first."""
    for index, tensor in enumerate(node.inputs):
        if tensor is not None:
            with Blame(node):
                first = [
                    axis for axis in range(tensor.type.rank) if node.op.axes.kept(node, index, axis) == 0
                ]
            if first != ([0] if tensor in whole else []):
                return False
    return True
