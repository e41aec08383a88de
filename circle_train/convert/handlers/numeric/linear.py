"""Matrix products."""

from __future__ import annotations

from math import prod

from circle_train.convert.building.builder import Builder
from circle_train.convert.building.registry import Call, handles
from circle_train.ir import Tensor
from circle_train.ops.open.derive import require_equal


@handles("Gemm")
def gemm(c: Call) -> Tensor:
    """alpha · A' B' + beta · C."""
    b, x, w, bias = c.b, c[0], c[1], c.optional(2)
    alpha, beta = c.attr("alpha", 1.0), c.attr("beta", 1.0)
    x = b.transpose(x, (1, 0)) if c.attr("transA", 0) else x
    w = w if c.attr("transB", 0) else b.transpose(w, (1, 0))
    outputs, taken = b.shape(w)
    require_equal(b.shape(x)[1], taken)
    if bias is None or beta == 0:
        return scaled(b, b("FULLY_CONNECTED", x, w), alpha)
    if alpha == beta == 1 and (shape := b.shape(bias)) and prod(shape) == shape[-1] == outputs:
        return b("FULLY_CONNECTED", x, w, b.reshape(bias, (outputs,)))
    return b("ADD", scaled(b, b("FULLY_CONNECTED", x, w), alpha), scaled(b, bias, beta))


def scaled(b: Builder, x: Tensor, factor: float) -> Tensor:
    return x if factor == 1 else b("MUL", x, b.like(x, factor))


@handles("MatMul")
def matmul(c: Call) -> Tensor:
    return product(c.b, c[0], c[1])


def product(b: Builder, x: Tensor, w: Tensor) -> Tensor:
    """numpy's matmul; by a matrix of constants it is a fully connected layer."""
    if w.type.rank == 1:
        column = product(b, x, b.reshape(w, (*b.shape(w), 1)))
        return b.reshape(column, b.shape(column)[:-1])
    if x.type.rank == 1:
        row = product(b, b.reshape(x, (1, *b.shape(x))), w)
        return b.reshape(row, (*b.shape(row)[:-2], *b.shape(row)[-1:]))
    if w.type.rank == 2 and (w.is_constant or x.type.rank > 2) and x.dtype.is_float:
        if x.type.is_static and w.type.is_static:  # the operator would take any multiple for several rows
            require_equal(b.shape(x)[-1], b.shape(w)[0])
        return b("FULLY_CONNECTED", x, b.transpose(w, (1, 0)), keep_num_dims=x.type.rank > 2)
    return b("BATCH_MATMUL", x, w)
