"""Tensors that show the memory of others."""

from __future__ import annotations

from circle_train.ir.node import Tensor


def stored_in(tensor: Tensor, known: dict[Tensor, Tensor] | None = None) -> Tensor:
    """The tensor whose memory a view shows; itself where it is none. What is `known` of views is not looked for again."""
    shown = []
    while known is None or tensor not in known:
        maker = tensor.producer
        place = None if maker is None else maker.op.view_input
        below = None if maker is None or place is None else maker.inputs[place]
        if below is None:
            break
        shown.append(tensor)
        tensor = below
    if known is not None:
        tensor = known.get(tensor, tensor)
        known.update(dict.fromkeys(shown, tensor))
    return tensor
