"""Convolutions, pools and resized pictures as calls of given extents."""

from __future__ import annotations

from typing import Any

import numpy as np
from native import struct
from test_images import Case, Image
from test_kernels import rand

from sized.call import Arrays, Call, args, stored, summing, zeros


class Convolution:
    """A convolution in float64, or with a `multiplier` a depthwise one."""

    def __init__(self, case: Case, multiplier: int = 0) -> None:
        self.image = im = Image(case)
        self.x = rand(case.n, case.h, case.w, case.c)
        self.w = rand(case.o, *case.k, 1 if multiplier else case.c)
        self.b, self.dy = rand(case.o), rand(case.n, im.oh, im.ow, case.o, seed=4)
        self.y = np.zeros(self.dy.shape) + self.b
        self.dx, self.dw = np.zeros(self.x.shape), np.zeros(self.w.shape)
        for kh, kw, oh, ow, ih, iw in im.cells():
            wk, xs, ds = self.w[:, kh, kw], self.x[:, ih, iw].astype(np.float64), self.dy[:, oh, ow]
            if multiplier:
                repeated = np.repeat(xs, multiplier, -1)
                self.y[:, oh, ow] += repeated * wk[:, 0]
                self.dw[:, kh, kw, 0] += (ds * repeated).sum((0, 1))
                self.dx[:, ih, iw] += (ds * wk[:, 0]).reshape(*xs.shape, multiplier).sum(-1)
            else:
                self.y[:, oh, ow] += xs @ wk.T
                self.dw[:, kh, kw] += np.einsum("npo,npc->oc", ds, xs)
                self.dx[:, ih, iw] += ds.astype(np.float64) @ wk
        if multiplier:  # these weights lie 1HWO
            self.w, self.dw = (np.ascontiguousarray(v.transpose(3, 1, 2, 0)) for v in (self.w, self.dw))

    def forward(self) -> Call:
        return stored(args("ct_conv_args", x=self.x, w=self.w, b=self.b, shape=self.image.shape), y=self.y)

    def grad_x(self) -> Call:
        return stored(args("ct_conv_grad_x_args", dy=self.dy, w=self.w, shape=self.image.shape), dx=self.dx)

    def grad_w(self) -> Call:
        given = {"dy": self.dy, "x": self.x, "shape": self.image.shape, "has_w": 1, "has_b": 1}
        db = self.dy.sum((0, 1, 2), dtype=np.float64)
        return stored(summing("ct_conv_grad_w_args", **given), w=self.dw, b=db)


def conv(batch: int, h: int, w: int, ins: int, outs: int, kernel: int, stride: int) -> Convolution:
    return Convolution(Case(batch, h, w, ins, outs, (kernel, 2), (stride, stride)))


def depthwise(batch: int, h: int, w: int, ins: int, multiplier: int, kernel: int, stride: int) -> Convolution:
    return Convolution(Case(batch, h, w, ins, ins * multiplier, (kernel, 2), (stride, stride)), multiplier)


class Pool:
    """Maxima and means over windows, and what their gradients send back."""

    def __init__(self, x: np.ndarray, kernel: int, stride: int) -> None:
        n, h, w, c = x.shape
        self.image = im = Image(Case(n, h, w, c, c, (kernel, 2), (stride, stride)))
        shape = (n, im.oh, im.ow, c)
        self.x, self.dy = x, rand(*shape, seed=1)
        self.best, self.where = np.full(shape, -np.inf), np.zeros(shape, np.uint8)
        self.mean, count = np.zeros(shape), np.zeros((1, im.oh, im.ow, 1))
        for kh, kw, oh, ow, ih, iw in im.cells():
            better = x[:, ih, iw] > self.best[:, oh, ow]
            self.best[:, oh, ow] = np.where(better, x[:, ih, iw], self.best[:, oh, ow])
            self.where[:, oh, ow] = np.where(better, kh * 2 + kw, self.where[:, oh, ow])
            self.mean[:, oh, ow] += x[:, ih, iw]
            count[:, oh, ow] += 1
        self.mean /= np.maximum(count, 1)
        self.sent, self.shared = np.zeros(x.shape), np.zeros(x.shape)
        for kh, kw, oh, ow, ih, iw in im.cells():
            here = self.where[:, oh, ow] == kh * 2 + kw
            self.sent[:, ih, iw] += np.where(here, self.dy[:, oh, ow], 0)
            self.shared[:, ih, iw] += self.dy[:, oh, ow] / count[:, oh, ow]

    def largest(self) -> Call:
        outputs = {"y": zeros(*self.best.shape) + 7, "index": np.full(self.best.shape, 7, np.uint8)}
        wants = {"y": self.best, "index": self.where}
        return Call(args("ct_pool_args", x=self.x, shape=self.image.shape), outputs, wants)

    def average(self) -> Call:
        return stored(args("ct_pool_args", x=self.x, shape=self.image.shape), y=self.mean)

    def backward(self, dx: np.ndarray, **more: np.ndarray) -> Call:
        return stored(args("ct_pool_args", dy=self.dy, shape=self.image.shape, **more), dx=dx)


def pool(batch: int, h: int, w: int, channels: int, kernel: int, stride: int) -> Pool:
    return Pool(rand(batch, h, w, channels), kernel, stride)


class Pooled:
    """A convolution of few channels and the max pool over it."""

    def __init__(self, batch: int, h: int, w: int, ins: int, vectors: int, kernel: int) -> None:
        self.conv = Convolution(Case(batch, h, w, ins, 16 * vectors, (kernel, 2)))
        self.pool = Pool(self.conv.y, 2, 2)

    def forward(self) -> Call:
        conv, pool = self.conv, self.pool
        first = struct("ct_conv_args", x=conv.x, w=conv.w, b=conv.b, shape=conv.image.shape)
        outputs = {"y": zeros(*pool.best.shape) + 7, "index": np.full(pool.best.shape, 7, np.uint8)}

        def make(out: Arrays) -> Any:
            return struct(
                "ct_conv_pool_args", conv=first, pool=args("ct_pool_args", shape=pool.image.shape)(out)
            )

        return Call(make, outputs, {"y": pool.best})

    def backward(self) -> Call:
        conv, pool = self.conv, self.pool
        back = struct("ct_pool_args", dy=pool.dy, index=pool.where, shape=pool.image.shape)
        dw = np.zeros(conv.w.shape)
        for kh, kw, oh, ow, ih, iw in conv.image.cells():
            dw[:, kh, kw] += np.einsum("npo,npc->oc", pool.sent[:, oh, ow], conv.x[:, ih, iw])
        sums = summing("ct_conv_grad_w_args", x=conv.x, shape=conv.image.shape, has_w=1, has_b=1)
        both = {"w": dw, "b": pool.sent.sum((0, 1, 2))}
        return stored(lambda out: struct("ct_pool_conv_grad_w_args", pool=back, conv=sums(out)), **both)


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
