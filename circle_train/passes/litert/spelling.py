"""Operators that Circle has and TFLite has not, written by those that both have."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from circle_train.errors import UnsupportedOpError
from circle_train.ir import Graph, Node, Tensor
from circle_train.passes.litert.emission import Emission, fixed, rewrite


def is_foreign(node: Node) -> bool:
    """Whether only Circle has the operator, and we know how to write it otherwise."""
    return node.op.name in SPELLINGS


def spell_out(graph: Graph) -> None:
    for node in [node for node in graph.nodes if is_foreign(node)]:
        rewrite(graph, node, SPELLINGS[node.op.name])


def rms_norm(e: Emission) -> Tensor:
    """gamma · x / √(mean of x² + epsilon)"""
    x, gamma = e.node.inputs
    assert x is not None
    mean = e("MEAN", e("MUL", x, x), e.integers(-1), keep_dims=True)
    inverse = e("RSQRT", e("ADD", mean, e.number(e.node.op.epsilon, x)))
    return e("MUL", e("MUL", x, inverse), gamma)


def instance_norm(e: Emission) -> Tensor:
    """gamma · (x - mean) / √(variance + epsilon) + beta, over the spatial axes"""
    x, gamma, beta = e.node.inputs
    assert x is not None
    spatial = e.integers(*range(1, x.type.rank - 1))
    centred = e("SUB", x, e("MEAN", x, spatial, keep_dims=True))
    variance = e("MEAN", e("MUL", centred, centred), spatial, keep_dims=True)
    inverse = e("RSQRT", e("ADD", variance, e.number(e.node.op.epsilon, x)))
    return e("ADD", e("MUL", e("MUL", centred, inverse), gamma), beta)


def gru(e: Emission) -> Tensor:
    """Step after step; rows of the weights are z, n, r (h' = z·h + (1 - z)·tanh(x_n + r·h_n))."""
    x, r, b_r, w, b_w, h = (*e.node.inputs, None, None, None)[:6]
    assert x is not None and w is not None and r is not None
    op, hidden = e.node.op, r.shape[1]
    axis = 0 if op.is_time_major else 1
    steps, batch = x.shape[axis], x.shape[1 - axis]
    if steps < 0 or -1 in (x.shape_signature or ())[axis : axis + 1]:
        raise UnsupportedOpError(
            f"{e.node}: runs over an open number of steps, which .tflite has no operator for; fix it with "
            "ct.load(path, shapes=…), or save as .circle"
        )
    products = e("FULLY_CONNECTED", x, w, b_w, keep_num_dims=True)
    state = h if h is not None else fixed(np.zeros((batch, hidden), np.float32))
    outputs = []
    for given in e.all("UNPACK", products, num=steps, axis=axis):
        state = _gru_step(e, given, e("FULLY_CONNECTED", state, r, b_r), state)
        outputs.append(state)
    if op.return_sequences:
        return e("PACK", *outputs, values_count=steps, axis=axis)
    return outputs[-1]


def _gru_step(e: Emission, given: Tensor, remembered: Tensor, state: Tensor) -> Tensor:
    axis = fixed(np.array(1, np.int32))
    xz, xn, xr = e.all("SPLIT", axis, given, num_splits=3)
    hz, hn, hr = e.all("SPLIT", axis, remembered, num_splits=3)
    z = e("LOGISTIC", e("ADD", xz, hz))
    reset = e("LOGISTIC", e("ADD", xr, hr))
    candidate = e("TANH", e("ADD", xn, e("MUL", reset, hn)))
    return e("ADD", e("MUL", z, e("SUB", state, candidate)), candidate)


SPELLINGS: dict[str, Callable[[Emission], Tensor]] = {
    "RMS_NORM": rms_norm,
    "INSTANCE_NORM": instance_norm,
    "GRU": gru,
}
