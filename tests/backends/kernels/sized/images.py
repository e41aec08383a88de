"""Convolutions, pools and resized pictures as calls of given extents."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from native import struct

from sized.call import Arrays, Call, Make, args, rand, stored, summing, zeros


class Case(NamedTuple):
    n: int
    h: int
    w: int
    c: int
    o: int
    k: tuple[int, int]
    s: tuple[int, int] = (1, 1)
    d: tuple[int, int] = (1, 1)
    pad: str = "SAME"
    groups: int = 1


def geometry(size: int, k: int, s: int, d: int, pad: str) -> tuple[int, int]:
    reach = (k - 1) * d + 1
    if pad == "VALID":
        return (size - reach) // s + 1, 0
    out = -(-size // s)
    return out, max((out - 1) * s + reach - size, 0) // 2


class Image:
    """A case with its sizes, and each window cell as (kh, kw, output slice, input slice)."""

    def __init__(self, case: Case) -> None:
        self.case = case
        self.oh, self.ph = geometry(case.h, case.k[0], case.s[0], case.d[0], case.pad)
        self.ow, self.pw = geometry(case.w, case.k[1], case.s[1], case.d[1], case.pad)
        self.shape = struct(
            "ct_conv_shape", batch=case.n, in_h=case.h, in_w=case.w, in_c=case.c, out_h=self.oh, out_w=self.ow,
            out_c=case.o, kernel_h=case.k[0], kernel_w=case.k[1], stride_h=case.s[0], stride_w=case.s[1],
            dilation_h=case.d[0], dilation_w=case.d[1], pad_top=self.ph, pad_left=self.pw, groups=case.groups,
        )  # fmt: skip

    def cells(self) -> Iterator[Any]:
        c = self.case
        for kh in range(c.k[0]):
            for kw in range(c.k[1]):
                pixels = [
                    (oh, ow, oh * c.s[0] - self.ph + kh * c.d[0], ow * c.s[1] - self.pw + kw * c.d[1])
                    for oh in range(self.oh)
                    for ow in range(self.ow)
                ]
                inside = [p for p in pixels if 0 <= p[2] < c.h and 0 <= p[3] < c.w]
                if inside:
                    yield kh, kw, *(np.array(v) for v in zip(*inside, strict=True))


class Convolution:
    """A convolution on random numbers, and its results in float64."""

    def __init__(self, case: Case, scale: float = 1.0) -> None:
        self.image = im = Image(case)
        self.x = rand(case.n, case.h, case.w, case.c)
        self.w = rand(*self.kernel, scale=scale)
        self.b, self.dy = rand(case.o), rand(case.n, im.oh, im.ow, case.o, seed=4)

    @property
    def kernel(self) -> tuple[int, ...]:
        case = self.image.case
        return case.o, *case.k, case.c // case.groups

    def cells(self) -> Iterator[Any]:
        """Each cell of each group: its weights, and where its inputs and outputs lie."""
        case = self.image.case
        ins, outs = case.c // case.groups, case.o // case.groups
        for kh, kw, oh, ow, ih, iw in self.image.cells():
            for g in range(case.groups):
                here, there = slice(g * ins, (g + 1) * ins), slice(g * outs, (g + 1) * outs)
                yield (there, kh, kw), (slice(None), oh, ow, there), (slice(None), ih, iw, here)

    @cached_property
    def sums(self) -> np.ndarray:
        """Without the bias."""
        x, w, sums = self.x.astype(np.float64), self.w.astype(np.float64), np.zeros(self.dy.shape)
        for cell, outs, ins in self.cells():
            sums[outs] += x[ins] @ w[cell].T
        return sums

    @property
    def y(self) -> np.ndarray:
        return self.sums + self.b

    @cached_property
    def dx(self) -> np.ndarray:
        dy, w, dx = self.dy.astype(np.float64), self.w.astype(np.float64), np.zeros(self.x.shape)
        for cell, outs, ins in self.cells():
            dx[ins] += dy[outs] @ w[cell]
        return dx

    @cached_property
    def dw(self) -> np.ndarray:
        return self.weights_of(self.dy)

    def weights_of(self, dy: np.ndarray) -> np.ndarray:
        """The gradient of the weights where this is the outputs'."""
        x, dw = self.x.astype(np.float64), np.zeros(self.w.shape)
        for cell, outs, ins in self.cells():
            dw[cell] += np.tensordot(dy[outs].astype(np.float64), x[ins], ((0, 1), (0, 1)))
        return dw

    def of_x(self, **more: Any) -> Make:
        return args("ct_conv_args", x=self.x, w=self.w, shape=self.image.shape, **more)

    def of_dy(self, **more: Any) -> Make:
        return args("ct_conv_grad_x_args", dy=self.dy, w=self.w, shape=self.image.shape, **more)

    def of_both(self, **more: Any) -> Make:
        return summing("ct_conv_grad_w_args", dy=self.dy, x=self.x, shape=self.image.shape, has_w=1, **more)

    def forward(self) -> Call:
        return stored(self.of_x(b=self.b), y=self.y)

    def grad_x(self) -> Call:
        return stored(self.of_dy(), dx=self.dx)

    def grad_w(self) -> Call:
        return stored(self.of_both(has_b=1), w=self.dw, b=self.dy.sum((0, 1, 2), dtype=np.float64))


class Depthwise(Convolution):
    """Each input channel by itself."""

    @property
    def kernel(self) -> tuple[int, ...]:
        return 1, *self.image.case.k, self.image.case.o

    @property
    def multiplier(self) -> int:
        return self.image.case.o // max(self.image.case.c, 1)

    @property
    def wide(self) -> np.ndarray:
        """Each channel as often as there are outputs of it."""
        return np.repeat(self.x, self.multiplier, -1).astype(np.float64)

    @cached_property
    def sums(self) -> np.ndarray:
        x, sums = self.wide, np.zeros(self.dy.shape)
        for kh, kw, oh, ow, ih, iw in self.image.cells():
            sums[:, oh, ow] += x[:, ih, iw] * self.w[0, kh, kw]
        return sums

    @cached_property
    def dx(self) -> np.ndarray:
        dx = np.zeros(self.x.shape)
        for kh, kw, oh, ow, ih, iw in self.image.cells():
            sent = self.dy[:, oh, ow].astype(np.float64) * self.w[0, kh, kw]
            dx[:, ih, iw] += sent.reshape(*dx[:, ih, iw].shape, self.multiplier).sum(-1)
        return dx

    def weights_of(self, dy: np.ndarray) -> np.ndarray:
        x, dw = self.wide, np.zeros(self.w.shape)
        for kh, kw, oh, ow, ih, iw in self.image.cells():
            dw[0, kh, kw] += (x[:, ih, iw] * dy[:, oh, ow]).sum((0, 1))
        return dw


def conv(batch: int, h: int, w: int, ins: int, outs: int, kernel: int, stride: int) -> Convolution:
    return Convolution(Case(batch, h, w, ins, outs, (kernel, 2), (stride, stride)))


def depthwise(batch: int, h: int, w: int, ins: int, multiplier: int, kernel: int, stride: int) -> Convolution:
    return Depthwise(Case(batch, h, w, ins, ins * multiplier, (kernel, 2), (stride, stride)))


class Pool:
    """Maxima and means over windows, and what their gradients send back."""

    def __init__(self, x: np.ndarray, k: tuple[int, int], s: tuple[int, int], pad: str = "SAME") -> None:
        self.x, (n, h, w, c) = x, x.shape
        self.image = im = Image(Case(n, h, w, c, c, k, s, pad=pad))
        self.shape = (n, im.oh, im.ow, c)
        self.dy = rand(*self.shape, seed=1)
        self.best, self.where = np.full(self.shape, -np.inf), np.zeros(self.shape, np.uint8)
        for kh, kw, oh, ow, ih, iw in im.cells():
            better = x[:, ih, iw] > self.best[:, oh, ow]
            self.best[:, oh, ow] = np.where(better, x[:, ih, iw], self.best[:, oh, ow])
            self.where[:, oh, ow] = np.where(better, kh * k[1] + kw, self.where[:, oh, ow])

    def sent_of(self, dy: np.ndarray) -> np.ndarray:
        """Each gradient goes where its maximum was."""
        dx, width = np.zeros(self.x.shape), self.image.case.k[1]
        for kh, kw, oh, ow, ih, iw in self.image.cells():
            dx[:, ih, iw] += np.where(self.where[:, oh, ow] == kh * width + kw, dy[:, oh, ow], 0)
        return dx

    @property
    def sent(self) -> np.ndarray:
        return self.sent_of(self.dy)

    @property
    def counts(self) -> np.ndarray:
        """How many cells of each window lie inside."""
        count = np.zeros((1, *self.shape[1:3], 1))
        for _, _, oh, ow, _, _ in self.image.cells():
            count[:, oh, ow] += 1
        return np.maximum(count, 1)

    @property
    def mean(self) -> np.ndarray:
        total = np.zeros(self.shape)
        for _, _, oh, ow, ih, iw in self.image.cells():
            total[:, oh, ow] += self.x[:, ih, iw]
        return total / self.counts

    @property
    def shared(self) -> np.ndarray:
        dx, parts = np.zeros(self.x.shape), self.dy / self.counts
        for _, _, oh, ow, ih, iw in self.image.cells():
            dx[:, ih, iw] += parts[:, oh, ow]
        return dx

    def largest(self) -> Call:
        outputs = {"y": zeros(*self.shape) + 7, "index": np.full(self.shape, 7, np.uint8)}
        wants = {"y": self.best, "index": self.where}
        return Call(args("ct_pool_args", x=self.x, shape=self.image.shape), outputs, wants)

    def average(self) -> Call:
        return stored(args("ct_pool_args", x=self.x, shape=self.image.shape), y=self.mean)

    def backward(self, dx: np.ndarray, **more: Any) -> Call:
        return stored(args("ct_pool_args", dy=self.dy, shape=self.image.shape, **more), dx=dx)


def pool(batch: int, h: int, w: int, channels: int, kernel: int, stride: int) -> Pool:
    return Pool(rand(batch, h, w, channels), (kernel, 2), (stride, stride))


class Pooled:
    """A convolution of few channels and the max pool over it."""

    def __init__(self, batch: int, h: int, w: int, ins: int, vectors: int, kernel: int) -> None:
        self.conv = Convolution(Case(batch, h, w, ins, 16 * vectors, (kernel, 2)))
        self.pool = Pool(self.conv.y, (2, 2), (2, 2))

    def forward(self) -> Call:
        conv, pool = self.conv, self.pool
        first = conv.of_x(b=conv.b)({})
        outputs = {"y": zeros(*pool.shape) + 7, "index": np.full(pool.shape, 7, np.uint8)}

        def make(out: Arrays) -> Any:
            over = struct("ct_pool_args", shape=pool.image.shape, **out)
            return struct("ct_conv_pool_args", conv=first, pool=over)

        return Call(make, outputs, {"y": pool.best})

    def backward(self) -> Call:
        back = struct("ct_pool_args", dy=self.pool.dy, index=self.pool.where, shape=self.pool.image.shape)
        return pooled_gradients(self.conv, back, self.pool.sent)


def pooled_gradients(conv: Convolution, back: Any, sent: np.ndarray) -> Call:
    """Of weights and bias, where the pool sends this back."""
    sums = summing("ct_conv_grad_w_args", x=conv.x, shape=conv.image.shape, has_w=1, has_b=1)
    wants = {"w": conv.weights_of(sent), "b": sent.sum((0, 1, 2))}
    return stored(lambda out: struct("ct_pool_conv_grad_w_args", pool=back, conv=sums(out)), **wants)


def resized(batch: int, h: int, w: int, channels: int, width: int) -> Call:
    """Rows upside down, and `width` columns of which each is the mean of all."""
    x = rand(batch, h, w, channels)
    rows = struct(
        "ct_resize_axis", starts=np.arange(h + 1, dtype=np.int32), index=np.arange(h, dtype=np.int32)[::-1].copy(),
        weight=np.ones(h, np.float32),
    )  # fmt: skip
    columns = struct(
        "ct_resize_axis", starts=np.arange(width + 1, dtype=np.int32) * w,
        index=np.tile(np.arange(w, dtype=np.int32), width), weight=np.full(w * width, 1 / max(w, 1), np.float32),
    )  # fmt: skip
    make = args(
        "ct_resize_args", x=x, batch=batch, in_h=h, in_w=w, out_h=h, out_w=width, channels=channels, rows=rows,
        columns=columns,
    )  # fmt: skip
    mean = x[:, ::-1].astype(np.float64).sum(2, keepdims=True) / max(w, 1)
    return stored(make, y=np.broadcast_to(mean, (batch, h, width, channels)))
