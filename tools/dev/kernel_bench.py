"""Times the native kernels on the shapes of the benchmark's networks: the least of many runs.

python tools/dev/kernel_bench.py [w1 w2 w3 w5 r18] [--threads 2] [--tier -1]
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tests/kernels"))
import native
from native import CONSTANTS, Program, struct

RELU, RELU6 = CONSTANTS["CT_ACT_RELU"], CONSTANTS["CT_ACT_RELU6"]
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
        "ct_update", kind=CONSTANTS["CT_UPDATE_" + kind], w=state[0], m=state[1], v=state[2], scalars=SCALARS
    ), state


def out_size(size: int, stride: int, k: int) -> tuple[int, int]:
    """TensorFlow's SAME."""
    out = -(-size // stride)
    return out, max((out - 1) * stride + k - size, 0) // 2


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
    o, pad = out_size(size, s, k)
    shape = struct(
        "ct_conv_shape",
        batch=n,
        in_h=size,
        in_w=size,
        in_c=cin,
        out_h=o,
        out_w=o,
        out_c=cout,
        kernel_h=k,
        kernel_w=k,
        stride_h=s,
        stride_w=s,
        dilation_h=1,
        dilation_w=1,
        pad_top=pad,
        pad_left=pad,
        groups=1,
    )
    w_shape = (k, k, cout) if depthwise else (cout, k, k, cin)
    x, y, w, b = array(n, size, size, cin), array(n, o, o, cout), array(*w_shape), array(cout)
    dy, dx = array(n, o, o, cout), array(n, size, size, cin)
    flops = 2.0 * y.size * k * k * (1 if depthwise else cin)
    kind = "DEPTHWISE" if depthwise else "CONV"
    yield Item(
        f"{name} y",
        kind,
        struct("ct_conv_args", x=x, w=w, b=b, y=y, shape=shape, act=act),
        flops,
        x.size + y.size + w.size,
        times,
    )
    if not first:
        yield Item(
            f"{name} dx",
            kind + "_GRAD_X",
            struct("ct_conv_grad_x_args", dy=dy, w=w, dx=dx, shape=shape, out_mask_y=x, out_mask_act=RELU6),
            flops,
            2 * x.size + y.size + w.size,
            times,
        )
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
    one = {"batch0": 1, "batch1": 1, "alpha": 1}
    flops = 2.0 * p * i * o
    yield Item(
        f"{name} y",
        "MATMUL",
        struct(
            "ct_matmul_args",
            a=x,
            b=w,
            c=y,
            bias=b,
            m=p,
            n=o,
            k=i,
            a_row=i,
            a_col=1,
            b_row=1,
            b_col=i,
            c_row=o,
            act=act,
            **one,
        ),
        flops,
        x.size + y.size + w.size,
        times,
    )
    if not dense.first:
        yield Item(
            f"{name} dx",
            "MATMUL",
            struct(
                "ct_matmul_args",
                a=dy,
                b=w,
                c=dx,
                m=p,
                n=i,
                k=o,
                a_row=o,
                a_col=1,
                b_row=i,
                b_col=1,
                c_row=i,
                **one,
            ),
            flops,
            x.size + y.size + w.size,
            times,
        )
    wu, ws = adam(o, i, kind=kind)
    bu, bs = adam(o, kind=kind)
    args = struct(
        "ct_matmul_grad_w_args",
        dy=dy,
        x=x,
        rows=p,
        out_features=o,
        in_features=i,
        w=wu,
        b=bu,
        has_w=1,
        has_b=1,
    )
    args._keep["state"] = (ws, bs)
    yield Item(f"{name} dw", "MATMUL_GRAD_W", args, flops, x.size + y.size + 6 * w.size, times)


def w1(p: int = 10) -> Iterator[Item]:
    """784-128 relu-10, MSE."""
    yield from linear_items("fc1", Dense(p, 784, 128, RELU, first=True))
    yield from linear_items("fc2", Dense(p, 128, 10, 0))
    a, t = array(p, 10), array(p, 10)
    yield Item(
        "mse",
        "MEAN_SQUARED_ERROR",
        struct(
            "ct_regression_loss_args",
            p=a,
            target=t,
            loss=array(1),
            dp=array(p, 10),
            size=p * 10,
            loss_scale=1,
            grad_scale=1,
        ),
        0,
        3 * a.size,
    )


def pool_items(name: str, n: int, size: int, c: int, k: int = 2) -> Iterator[Item]:
    """Max pooling with stride 2 and its gradient."""
    o, pad = out_size(size, 2, k)
    shape = struct(
        "ct_conv_shape",
        batch=n,
        in_h=size,
        in_w=size,
        in_c=c,
        out_h=o,
        out_w=o,
        out_c=c,
        kernel_h=k,
        kernel_w=k,
        stride_h=2,
        stride_w=2,
        dilation_h=1,
        dilation_w=1,
        pad_top=pad,
        pad_left=pad,
        groups=1,
    )
    x, y, dx = array(n, size, size, c), array(n, o, o, c), array(n, size, size, c)
    index = np.zeros(y.shape, np.uint8)
    yield Item(
        f"{name} y",
        "MAX_POOL",
        struct("ct_pool_args", x=x, y=y, index=index, shape=shape),
        0,
        x.size + 1.25 * y.size,
    )
    yield Item(
        f"{name} dx",
        "MAX_POOL_GRAD",
        struct("ct_pool_args", dy=y, dx=dx, index=index, shape=shape, out_mask_y=x, out_mask_act=RELU),
        0,
        2 * x.size + 1.25 * y.size,
    )


def w2() -> Iterator[Item]:
    """The small convolutional network, batch 32."""
    yield from conv_items("conv1", Conv(32, 28, 1, 32, 3, 1, act=RELU, first=True))
    yield from pool_items("pool1", 32, 28, 32)
    yield from conv_items("conv2", Conv(32, 14, 32, 64, 3, 1, act=RELU))
    yield from pool_items("pool2", 32, 14, 64)
    yield from linear_items("fc1", Dense(32, 3136, 128, RELU))
    yield from linear_items("fc2", Dense(32, 128, 10, 0))


def w3() -> Iterator[Item]:
    """MobileNetV2 1.0, 224, batch 10; equal layers once with their count."""
    n, size, cin = 10, 112, 32
    yield from conv_items("conv 3>32 224", Conv(n, 224, 3, 32, 3, 2, act=RELU6, first=True))
    for t, c, count, s in (
        (1, 16, 1, 1),
        (6, 24, 2, 2),
        (6, 32, 3, 2),
        (6, 64, 4, 2),
        (6, 96, 3, 1),
        (6, 160, 3, 2),
        (6, 320, 1, 1),
    ):
        for first in (True, False):
            times, stride = (1, s) if first else (count - 1, 1)
            if times == 0:
                continue
            wide, out = cin * t, -(-size // stride)
            if t != 1:
                yield from conv_items(
                    f"{cin}>{wide} {size}", Conv(n, size, cin, wide, 1, 1, act=RELU6, times=times)
                )
            yield from conv_items(
                f"dw {wide} {size}/{stride}",
                Conv(n, size, wide, wide, 3, stride, act=RELU6, times=times, depthwise=True),
            )
            yield from conv_items(f"{wide}>{c} {out}", Conv(n, out, wide, c, 1, 1, times=times))
            size, cin = out, c
    yield from conv_items("320>1280 7", Conv(n, 7, 320, 1280, 1, 1, act=RELU6))
    yield from linear_items("fc", Dense(n, 1280, 1000, 0))


def r18() -> Iterator[Item]:
    """ResNet-18, 224, batch 8; equal layers once with their count."""
    n, size, cin = 8, 56, 64
    yield from conv_items("conv 3>64 224", Conv(n, 224, 3, 64, 7, 2, act=RELU, first=True))
    yield from pool_items("pool", n, 112, 64, 3)
    for c, stride, times in ((64, 1, 4), (128, 2, 3), (256, 2, 3), (512, 2, 3)):
        if stride == 2:
            yield from conv_items(f"{cin}>{c} {size}/2", Conv(n, size, cin, c, 3, 2, act=RELU))
            yield from conv_items(f"{cin}>{c} {size}/2 1x1", Conv(n, size, cin, c, 1, 2))
        size, cin = size // stride, c
        yield from conv_items(f"{c}>{c} {size}", Conv(n, size, c, c, 3, 1, act=RELU, times=times))
    yield from linear_items("fc", Dense(n, 512, 1000, 0))


def w5() -> Iterator[Item]:
    """BERT-mini: 4 layers, hidden 256, 4 heads, FFN 1024, 8 x 128 tokens, vocabulary 30522."""
    p, h, f, b, heads, s, kind = 1024, 256, 1024, 8, 4, 128, "ADAMW_TORCH"
    yield from linear_items("qkvo", Dense(p, h, h, 0, 16, kind))
    yield from linear_items("f1", Dense(p, h, f, 0, 4, kind))
    yield from linear_items("f2", Dense(p, f, h, 0, 4, kind))
    d = h // heads
    q, k, scores = array(b, s, h), array(b, s, h), array(b, heads, s, s)
    flops = 2.0 * b * heads * s * s * d
    common: dict[str, Any] = {"batch0": b, "batch1": heads, "alpha": 0.125}
    inner: dict[str, Any] = {"a_batch0": s * h, "a_batch1": d, "a_row": h, "a_col": 1}
    inner |= {"b_batch0": s * h, "b_batch1": d}
    outer: dict[str, Any] = {"c_batch0": heads * s * s, "c_batch1": s * s, "c_row": s}
    yield Item(
        "q k^T",
        "MATMUL",
        struct(
            "ct_matmul_args", a=q, b=k, c=scores, m=s, n=s, k=d, b_row=1, b_col=h, **inner, **outer, **common
        ),
        flops,
        2 * q.size + scores.size,
        8,
    )
    turned = {
        "a_batch0": heads * s * s,
        "a_batch1": s * s,
        "b_batch0": s * h,
        "b_batch1": d,
        "b_row": h,
        "b_col": 1,
        "c_batch0": s * h,
        "c_batch1": d,
        "c_row": h,
    }
    yield Item(
        "p v",
        "MATMUL",
        struct("ct_matmul_args", a=scores, b=k, c=q, m=s, n=d, k=s, a_row=s, a_col=1, **turned, **common),
        flops,
        2 * q.size + scores.size,
        8,
    )
    yield Item(
        "p^T dy",
        "MATMUL",
        struct("ct_matmul_args", a=scores, b=k, c=q, m=s, n=d, k=s, a_row=1, a_col=s, **turned, **common),
        flops,
        2 * q.size + scores.size,
        8,
    )
    sizes = {"rows": b * heads * s, "cols": s, "beta": 1}
    yield Item(
        "softmax",
        "SOFTMAX",
        struct("ct_softmax_args", x=scores, y=array(*scores.shape), **sizes),
        0,
        2 * scores.size,
        4,
    )
    yield Item(
        "softmax dx",
        "SOFTMAX_GRAD",
        struct("ct_softmax_args", y=scores, dy=scores, dx=array(*scores.shape), **sizes),
        0,
        3 * scores.size,
        4,
    )
    yield from norm_items(p, h)
    yield from gelu_items(p, f)
    update, state = adam(30522, h, kind=kind)
    index = np.random.default_rng(0).integers(0, 30522, p).astype(np.int32)
    args = struct(
        "ct_scatter_add_args",
        dy=array(p, h),
        index=index,
        outer=1,
        rows=30522,
        width=h,
        count=p,
        update=update,
    )
    args._keep["state"] = state
    yield Item("embedding update", "SCATTER_ADD", args, 0, 6 * state[0].size)


def norm_items(p: int, h: int) -> Iterator[Item]:
    """Layer normalisation of the residual sum."""
    x, y, g, mean = array(p, h), array(p, h), array(h), array(p)
    yield Item(
        "norm",
        "LAYER_NORM",
        struct(
            "ct_norm_args",
            x=x,
            add=y,
            gamma=g,
            beta=g,
            y=array(p, h),
            sum=array(p, h),
            mean=mean,
            rstd=array(p),
            rows=p,
            cols=h,
            eps=1e-5,
        ),
        0,
        4 * x.size,
        9,
    )
    update, state = adam(2, h, kind="ADAMW_TORCH")
    args = struct(
        "ct_norm_grad_args",
        dy=y,
        x=x,
        gamma_values=g,
        mean=mean,
        rstd=array(p),
        dx=array(p, h),
        rows=p,
        cols=h,
        gamma=update,
        beta=update,
        has_gamma=1,
        has_beta=1,
    )
    args._keep["state"] = state
    yield Item("norm dx", "LAYER_NORM_GRAD", args, 0, 3 * x.size, 9)


def gelu_items(p: int, f: int) -> Iterator[Item]:
    """GELU as chains."""
    x, dy = array(p, f), array(p, f)

    def tensor(a: np.ndarray, reg: int = 0) -> Any:
        return struct("ct_chain_tensor", data=a, strides=[1] + [0] * 7, reg=reg)

    for name, inputs, op in (("gelu", [x], "GELU"), ("gelu dx", [x, dy], "GELU_GRAD")):
        ops = [struct("ct_chain_op", op=CONSTANTS["CT_OP_" + op], dst=2, a=0, b=1)]
        args = struct(
            "ct_chain_args",
            inputs=[tensor(i) for i in inputs],
            outputs=[tensor(array(p, f), 2)],
            ops=ops,
            shape=[p * f] + [0] * 7,
            rank=1,
            input_count=len(inputs),
            output_count=1,
            op_count=1,
        )
        yield Item(name, "CHAIN", args, 0, (len(inputs) + 1) * x.size, 4)


NETS: dict[str, Callable[[], Iterator[Item]]] = {"w1": w1, "w2": w2, "w3": w3, "w5": w5, "r18": r18}


def least_seconds(program: Program, budget: float) -> float:
    """The least of as many runs as fit the budget (at least five)."""
    best, end, runs = 1e9, time.perf_counter() + budget, 0
    while runs < 5 or time.perf_counter() < end:
        start = time.perf_counter()
        program.run()
        best = min(best, time.perf_counter() - start)
        runs += 1
    return best


def main() -> None:
    """Prints one table a network, and its sum."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("nets", nargs="*", default=list(NETS))
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--tier", type=int, default=-1)
    parser.add_argument("--budget", type=float, default=0.05, help="seconds for each kernel")
    args = parser.parse_args()
    print(native.LIBRARY, "threads", args.threads)
    for net in args.nets:
        total, steps = 0.0, []
        for item in NETS[net]():
            seconds = least_seconds(Program([(item.kernel, item.args)], args.threads, args.tier), args.budget)
            total += seconds * item.times
            print(
                f"{net} {item.name:24s} x{item.times:<2d} {seconds * 1e6:9.1f} us "
                f"{item.flops / seconds / 1e9:7.0f} GFLOP/s "
                f"{item.floats * 4 / seconds / 1e9:6.1f} GB/s"
            )
            steps.append((item.kernel, item.args))
        if net == "w1":
            whole = least_seconds(Program(steps, args.threads, args.tier), 0.5)
            print(f"{net} as one program {whole * 1e6:.1f} us")
        print(f"{net} sum {total * 1e3:.3f} ms")


if __name__ == "__main__":
    main()
