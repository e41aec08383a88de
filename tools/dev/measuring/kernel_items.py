"""Kernel calls on random values, with their arithmetic and least traffic, for kernel_bench.py."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "tests/backends/kernels"))
from native import struct

from circle_train.backends.native.engine import abi

RELU, RELU6 = abi.Act.RELU, abi.Act.RELU6
SCALARS = np.array([1e-3, 0.9, 0.999, 1e-7, 0, 1, 0.1, 0.001, 1] + [0] * 7, np.float32)


@dataclass
class Item:
    """One kernel call: its name, how often a training step makes it, its arithmetic and least traffic."""

    name: str
    kernel: str
    args: Any
    flops: float
    floats: float
    times: int = 1


def array(*shape: int) -> np.ndarray:
    """Small random values on a cache line, so that nothing overflows or turns denormal."""
    size = int(np.prod(shape))
    memory = np.empty(size + 16, np.float32)
    start = -memory.ctypes.data % 64 // 4
    made = memory[start : start + size].reshape(shape)
    made[...] = (np.random.default_rng(len(shape)).random(shape, dtype=np.float32) - 0.5) * 0.1
    return made


def adam(*shape: int, kind: str = "ADAM") -> tuple[Any, list[np.ndarray]]:
    """An update with its state."""
    state = [array(*shape), np.zeros(shape, np.float32), np.zeros(shape, np.float32)]
    return struct(
        "ct_update", kind=abi.UpdateKind[kind], w=state[0], m=state[1], v=state[2], scalars=SCALARS
    ), state


def out_size(size: int, stride: int, k: int) -> tuple[int, int]:
    """TensorFlow's SAME."""
    out = -(-size // stride)
    return out, max((out - 1) * stride + k - size, 0) // 2


def image_shape(n: int, size: int, cin: int, cout: int, k: int, s: int) -> tuple[Any, int]:
    """Square windows over square images, and how large the result is."""
    o, pad = out_size(size, s, k)
    sizes = {"batch": n, "in_h": size, "in_w": size, "in_c": cin, "out_h": o, "out_w": o, "out_c": cout}
    window = {"kernel_h": k, "kernel_w": k, "stride_h": s, "stride_w": s, "dilation_h": 1, "dilation_w": 1}
    return struct("ct_conv_shape", **sizes, **window, pad_top=pad, pad_left=pad, groups=1), o


@dataclass
class Conv:
    """A square convolution, SAME; `first` has no input gradient, `times` is how often the network has it."""

    n: int
    size: int
    cin: int
    cout: int
    k: int
    s: int = 1
    act: int = 0
    times: int = 1
    depthwise: bool = False
    first: bool = False


def conv_items(name: str, conv: Conv) -> Iterator[Item]:
    """Forward, input gradient (masked by the input) and weight gradient with Adam."""
    n, size, cin, cout, k, s = conv.n, conv.size, conv.cin, conv.cout, conv.k, conv.s
    act, times, depthwise, first = conv.act, conv.times, conv.depthwise, conv.first
    shape, o = image_shape(n, size, cin, cout, k, s)
    w_shape = (k, k, cout) if depthwise else (cout, k, k, cin)
    x, y, w, b = array(n, size, size, cin), array(n, o, o, cout), array(*w_shape), array(cout)
    dy, dx = array(n, o, o, cout), array(n, size, size, cin)
    flops = 2.0 * y.size * k * k * (1 if depthwise else cin)
    kind = "DEPTHWISE" if depthwise else "CONV"
    args = struct("ct_conv_args", x=x, w=w, b=b, y=y, shape=shape, act=act)
    yield Item(f"{name} y", kind, args, flops, x.size + y.size + w.size, times)
    if not first:
        mask = {"out_mask_y": x, "out_mask_act": RELU6}
        args = struct("ct_conv_grad_x_args", dy=dy, w=w, dx=dx, shape=shape, **mask)
        yield Item(f"{name} dx", kind + "_GRAD_X", args, flops, 2 * x.size + y.size + w.size, times)
    wu, ws = adam(*w_shape)
    bu, bs = adam(cout)
    args = struct("ct_conv_grad_w_args", dy=dy, x=x, shape=shape, w=wu, b=bu, has_w=1, has_b=1)
    args._keep["state"] = (ws, bs)
    yield Item(f"{name} dw", kind + "_GRAD_W", args, flops, x.size + y.size + 6 * w.size, times)


@dataclass
class Dense:
    """`rows` vectors of `inputs` to `outputs`; `kind` names the optimizer."""

    rows: int
    inputs: int
    outputs: int
    act: int = 0
    times: int = 1
    kind: str = "ADAM"
    first: bool = False


def linear_items(name: str, dense: Dense) -> Iterator[Item]:
    """A dense layer and its gradients."""
    p, i, o, act, times, kind = dense.rows, dense.inputs, dense.outputs, dense.act, dense.times, dense.kind
    x, w, b, y, dy, dx = array(p, i), array(o, i), array(o), array(p, o), array(p, o), array(p, i)
    flops, floats = 2.0 * p * i * o, x.size + y.size + w.size
    args = struct(
        "ct_matmul_args", a=x, b=w, c=y, bias=b, m=p, n=o, k=i, a_row=i, a_col=1, b_row=1, b_col=i, c_row=o, act=act,
        batch0=1, batch1=1, alpha=1,
    )  # fmt: skip
    yield Item(f"{name} y", "MATMUL", args, flops, floats, times)
    if not dense.first:
        args = struct(
            "ct_matmul_args", a=dy, b=w, c=dx, m=p, n=i, k=o, a_row=o, a_col=1, b_row=i, b_col=1, c_row=i, batch0=1,
            batch1=1, alpha=1,
        )  # fmt: skip
        yield Item(f"{name} dx", "MATMUL", args, flops, floats, times)
    wu, ws = adam(o, i, kind=kind)
    bu, bs = adam(o, kind=kind)
    args = struct(
        "ct_matmul_grad_w_args", dy=dy, x=x, rows=p, out_features=o, in_features=i, w=wu, b=bu, has_w=1, has_b=1
    )  # fmt: skip
    args._keep["state"] = (ws, bs)
    yield Item(f"{name} dw", "MATMUL_GRAD_W", args, flops, x.size + y.size + 6 * w.size, times)


def pool_items(name: str, n: int, size: int, c: int, k: int = 2) -> Iterator[Item]:
    """Max pooling with stride 2 and its gradient."""
    shape, o = image_shape(n, size, c, c, k, 2)
    x, y, dx = array(n, size, size, c), array(n, o, o, c), array(n, size, size, c)
    index = np.zeros(y.shape, np.uint8)
    args = struct("ct_pool_args", x=x, y=y, index=index, shape=shape)
    yield Item(f"{name} y", "MAX_POOL", args, 0, x.size + 1.25 * y.size)
    args = struct("ct_pool_args", dy=y, dx=dx, index=index, shape=shape, out_mask_y=x, out_mask_act=RELU)
    yield Item(f"{name} dx", "MAX_POOL_GRAD", args, 0, 2 * x.size + 1.25 * y.size)


def norm_items(p: int, h: int) -> Iterator[Item]:
    """Layer normalisation of the residual sum."""
    x, y, g, mean = array(p, h), array(p, h), array(h), array(p)
    args = struct(
        "ct_norm_args", x=x, add=y, gamma=g, beta=g, y=array(p, h), sum=array(p, h), mean=mean, rstd=array(p), rows=p,
        cols=h, eps=1e-5,
    )  # fmt: skip
    yield Item("norm", "LAYER_NORM", args, 0, 4 * x.size, 9)
    update, state = adam(2, h, kind="ADAMW_TORCH")
    args = struct(
        "ct_norm_grad_args", dy=y, x=x, gamma_values=g, mean=mean, rstd=array(p), dx=array(p, h), rows=p, cols=h,
        gamma=update, beta=update, has_gamma=1, has_beta=1,
    )  # fmt: skip
    args._keep["state"] = state
    yield Item("norm dx", "LAYER_NORM_GRAD", args, 0, 3 * x.size, 9)


def gelu_items(p: int, f: int) -> Iterator[Item]:
    """GELU as chains."""
    x, dy = array(p, f), array(p, f)

    def tensor(a: np.ndarray, reg: int = 0) -> Any:
        return struct("ct_chain_tensor", data=a, strides=[1] + [0] * 7, reg=reg)

    for name, inputs, op in (("gelu", [x], "GELU"), ("gelu dx", [x, dy], "GELU_GRAD")):
        ops = [struct("ct_chain_operation", op=abi.ChainOp[op], dst=2, a=0, b=1)]
        args = struct(
            "ct_chain_args", inputs=[tensor(i) for i in inputs], outputs=[tensor(array(p, f), 2)], ops=ops,
            shape=[p * f] + [0] * 7, rank=1, input_count=len(inputs), output_count=1, op_count=1,
        )  # fmt: skip
        yield Item(name, "CHAIN", args, 0, (len(inputs) + 1) * x.size, 4)


def attention_items(b: int, s: int, heads: int, h: int) -> Iterator[Item]:
    """The batched products of attention and its softmax, for 4 layers."""
    d = h // heads
    q, k, scores = array(b, s, h), array(b, s, h), array(b, heads, s, s)
    flops = 2.0 * b * heads * s * s * d
    common: dict[str, Any] = {"batch0": b, "batch1": heads, "alpha": 0.125}
    inner: dict[str, Any] = {"a_batch0": s * h, "a_batch1": d, "a_row": h, "a_col": 1}
    inner |= {"b_batch0": s * h, "b_batch1": d}
    outer: dict[str, Any] = {"c_batch0": heads * s * s, "c_batch1": s * s, "c_row": s}
    floats = 2 * q.size + scores.size
    args = struct(
        "ct_matmul_args", a=q, b=k, c=scores, m=s, n=s, k=d, b_row=1, b_col=h, **inner, **outer, **common
    )  # fmt: skip
    yield Item("q k^T", "MATMUL", args, flops, floats, 8)
    turned = {
        "a_batch0": heads * s * s, "a_batch1": s * s, "b_batch0": s * h, "b_batch1": d, "b_row": h, "b_col": 1,
        "c_batch0": s * h, "c_batch1": d, "c_row": h,
    }  # fmt: skip
    for name, row, col in (("p v", s, 1), ("p^T dy", 1, s)):
        args = struct(
            "ct_matmul_args", a=scores, b=k, c=q, m=s, n=d, k=s, a_row=row, a_col=col, **turned, **common
        )  # fmt: skip
        yield Item(name, "MATMUL", args, flops, floats, 8)
    sizes, made = {"rows": b * heads * s, "cols": s, "beta": 1}, array(*scores.shape)
    yield Item(
        "softmax", "SOFTMAX", struct("ct_softmax_args", x=scores, y=made, **sizes), 0, 2 * scores.size, 4
    )
    args = struct("ct_softmax_args", y=scores, dy=scores, dx=made, **sizes)
    yield Item("softmax dx", "SOFTMAX_GRAD", args, 0, 3 * scores.size, 4)


def embedding_items(rows: int, count: int, h: int, kind: str) -> Iterator[Item]:
    """The update of a table of which some rows were read."""
    update, state = adam(rows, h, kind=kind)
    index = np.random.default_rng(0).integers(0, rows, count).astype(np.int32)
    args = struct(
        "ct_scatter_add_args", dy=array(count, h), index=index, outer=1, rows=rows, width=h, count=count, update=update
    )  # fmt: skip
    args._keep["state"] = state
    yield Item("embedding update", "SCATTER_ADD", args, 0, 6 * state[0].size)
