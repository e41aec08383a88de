"""Times the native kernels on the shapes of the benchmark's networks: the least of many runs.

python tools/dev/measuring/kernel_bench.py                  all networks
python tools/dev/measuring/kernel_bench.py w2 w3 --cold     some, with what they read out of the caches, as it is within a step
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator

import numpy as np
from kernel_items import (
    RELU,
    RELU6,
    Conv,
    Dense,
    Item,
    array,
    attention_items,
    conv_items,
    embedding_items,
    gelu_items,
    linear_items,
    norm_items,
    pool_items,
    struct,
)
from native import LIBRARY, Program

OTHER_FLOATS = 24 << 20
"""Of other memory, enough to push everything else out of the caches."""


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
    p, h, f, kind = 1024, 256, 1024, "ADAMW_TORCH"
    yield from linear_items("qkvo", Dense(p, h, h, 0, 16, kind))
    yield from linear_items("f1", Dense(p, h, f, 0, 4, kind))
    yield from linear_items("f2", Dense(p, f, h, 0, 4, kind))
    yield from attention_items(8, 128, 4, h)
    yield from norm_items(p, h)
    yield from gelu_items(p, f)
    yield from embedding_items(30522, p, h, kind)


def gpt() -> Iterator[Item]:
    """GPT of the survey: 4 layers, width 256, 8 heads, 4 x 256 tokens, vocabulary 8192: rows of powers of two everywhere."""
    p, h = 1024, 256
    yield from linear_items("qkv", Dense(p, h, 3 * h, 0, 4))
    yield from linear_items("o", Dense(p, h, h, 0, 4))
    yield from linear_items("f1", Dense(p, h, 4 * h, 0, 4))
    yield from linear_items("f2", Dense(p, 4 * h, h, 0, 4))
    yield from attention_items(4, 256, 8, h)
    yield from linear_items("head", Dense(p, h, 8192, 0))


def vit() -> Iterator[Item]:
    """ViT-tiny of the survey: 12 layers, width 192, 3 heads, 8 x 197 tokens."""
    p, h = 8 * 197, 192
    yield from linear_items("qkv", Dense(p, h, 3 * h, 0, 12))
    yield from linear_items("o", Dense(p, h, h, 0, 12))
    yield from linear_items("f1", Dense(p, h, 4 * h, 0, 12))
    yield from linear_items("f2", Dense(p, 4 * h, h, 0, 12))
    yield from attention_items(8, 197, 3, h)


NETS: dict[str, Callable[[], Iterator[Item]]] = {
    "gpt": gpt,
    "vit": vit,
    "w1": w1,
    "w2": w2,
    "w3": w3,
    "w5": w5,
    "r18": r18,
}


def least_seconds(program: Program, budget: float, other: np.ndarray | None = None) -> float:
    """The least of as many runs as fit the budget (at least five), between which `other` is written."""
    best, end, runs = 1e9, time.perf_counter() + budget, 0
    while runs < 5 or time.perf_counter() < end:
        if other is not None:
            other += 1
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
    parser.add_argument("--cold", action="store_true", help="operands out of the caches")
    args = parser.parse_args()
    other = np.zeros(OTHER_FLOATS, np.float32) if args.cold else None
    print(LIBRARY, "threads", args.threads)
    for net in args.nets:
        total, steps = 0.0, []
        for item in NETS[net]():
            program = Program([(item.kernel, item.args)], args.threads, args.tier)
            seconds = least_seconds(program, args.budget, other)
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
