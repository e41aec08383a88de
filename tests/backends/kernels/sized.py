"""Every kernel as a call of given extents: its arguments, its outputs before, and what numpy says they are afterwards."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from native import struct
from test_elementwise import chain, elements
from test_images import Case, Image
from test_kernels import rand

from circle_train.backends.native.engine import abi

Arrays = dict[str, np.ndarray]
Make = Callable[[Arrays], Any]


class Call(NamedTuple):
    """One call: its arguments for given outputs, the outputs before, and after."""

    make: Make
    outputs: Arrays
    wants: Arrays

    def itself(self) -> Call:
        return self


def args(name: str, **given: Any) -> Make:
    """A structure whose other fields are the outputs."""
    return lambda out: struct(name, **given, **out)


def summing(name: str, **given: Any) -> Make:
    """A structure whose other fields say where gradients go: those named alike, or else dx itself."""

    def make(out: Arrays) -> Any:
        update = {key: struct("ct_update", g=value) for key, value in out.items() if key != "dx"}
        return struct(name, **given, **(out | update))

    return make


def zeros(*shape: int) -> np.ndarray:
    return np.zeros(shape, np.float32)


def stored(make: Make, **wants: np.ndarray) -> Call:
    """Outputs are written, whatever they held."""
    return Call(make, {name: zeros(*want.shape) + 7 for name, want in wants.items()}, wants)


def matmul(m: int, n: int, k: int, batch: int) -> Call:
    a, b, bias, c = rand(batch, m, k), rand(batch, n, k), rand(n), rand(batch, m, n, seed=1)
    make = args(
        "ct_matmul_args", a=a, b=b, bias=bias, m=m, n=n, k=k, batch0=batch, batch1=1, alpha=1.0, accumulate=1,
        a_row=k, a_col=1, b_row=1, b_col=k, c_row=n, a_batch0=m * k, b_batch0=n * k, c_batch0=m * n,
    )  # fmt: skip
    return Call(make, {"c": c}, {"c": a.astype(np.float64) @ b.swapaxes(1, 2) + bias + c})


def matmul_turned(m: int, n: int, k: int, batch: int) -> Call:
    """A read across its rows, B as it lies."""
    a, b = rand(batch, k, m), rand(batch, k, n)
    make = args(
        "ct_matmul_args", a=a, b=b, m=m, n=n, k=k, batch0=1, batch1=batch, alpha=0.5, act=abi.Act.RELU,
        a_row=1, a_col=m, b_row=n, b_col=1, c_row=n, a_batch1=m * k, b_batch1=n * k, c_batch1=m * n,
    )  # fmt: skip
    return stored(make, c=np.maximum(0.5 * a.astype(np.float64).swapaxes(1, 2) @ b, 0))


def matmul_bf16(m: int, n: int, k: int) -> Call:
    """Of operands rounded to bfloat16."""
    a, b = (np.round(8 * rand(*shape)) / 8 for shape in ((m, k), (k, n)))
    make = args(
        "ct_matmul_args", a=a, b=b, m=m, n=n, k=k, batch0=1, batch1=1, alpha=1.0, bf16=abi.Bf16.OPERANDS,
        a_row=k, a_col=1, b_row=n, b_col=1, c_row=n,
    )  # fmt: skip
    return stored(make, c=a.astype(np.float64) @ b)


def _matmul_grad_w(rows: int, outs: int, ins: int, bf16: int) -> Call:
    dy, x = (np.round(8 * rand(*shape)) / 8 for shape in ((rows, outs), (rows, ins)))
    sizes = {"rows": rows, "out_features": outs, "in_features": ins, "has_w": 1, "has_b": 1, "bf16": bf16}
    wide = dy.astype(np.float64)
    return stored(summing("ct_matmul_grad_w_args", dy=dy, x=x, **sizes), w=wide.T @ x, b=wide.sum(0))


def matmul_grad_w(rows: int, outs: int, ins: int) -> Call:
    return _matmul_grad_w(rows, outs, ins, 0)


def matmul_grad_w_bf16(rows: int, outs: int, ins: int) -> Call:
    return _matmul_grad_w(rows, outs, ins, abi.Bf16.OPERANDS)


class Attention:
    """softmax(q kᵀ / 4 + 2 mask) v in float64, operands and results lying as (batch, positions, heads, numbers)."""

    def __init__(self, rows: int, cols: int, heads: int, batch: int, parts: int) -> None:
        self.extents = {"batch0": batch, "batch1": heads, "rows": rows, "cols": cols}
        self.extents |= {"depth": 16 * parts, "width": 32}
        self.q, self.dy = rand(batch, rows, heads, 16 * parts), rand(batch, rows, heads, 32, seed=1)
        self.k, self.v = rand(batch, cols, heads, 16 * parts, seed=2), rand(batch, cols, heads, 32, seed=3)
        self.mask = rand(batch, 1, rows, cols, seed=4)
        q, k, v, dy = (a.astype(np.float64).transpose(0, 2, 1, 3) for a in (self.q, self.k, self.v, self.dy))
        z = q @ k.swapaxes(2, 3) / 4 + 2 * self.mask
        p = np.exp(z - z.max(-1, keepdims=True, initial=-1e30))
        p = p / np.maximum(p.sum(-1, keepdims=True), 1e-300)
        dp = dy @ v.swapaxes(2, 3)
        dz = p * (dp - (p * dp).sum(-1, keepdims=True)) / 4
        found = {"y": p @ v, "dq": dz @ k, "dk": dz.swapaxes(2, 3) @ q, "dv": p.swapaxes(2, 3) @ dy}
        self.found = {name: value.transpose(0, 2, 1, 3) for name, value in found.items()}

    def made(self, **given: np.ndarray) -> Make:
        def matrices(array: np.ndarray) -> tuple[int, ...]:
            _, size, heads, width = array.shape
            return array.ctypes.data, size * heads * width, width, heads * width

        def make(out: Arrays) -> Any:
            arrays = {"q": self.q, "k": self.k, "v": self.v, **given, **out}
            places = {name: matrices(array) for name, array in arrays.items()}
            rows, cols = self.mask.shape[-2:]
            places["mask"] = self.mask.ctypes.data, rows * cols, 0, cols
            return struct("ct_attention_args", **places, **self.extents, scale=0.25, mask_scale=2.0)

        return make

    def forward(self) -> Call:
        return stored(self.made(), y=self.found["y"])

    def backward(self) -> Call:
        return stored(self.made(dy=self.dy), **{name: self.found[name] for name in ("dq", "dk", "dv")})

    def values_alone(self) -> Call:
        return stored(self.made(dy=self.dy), dv=self.found["dv"])


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


class Softmax:
    """softmax(x) along the last axis, its logarithm, and their gradients."""

    def __init__(self, rows: int, cols: int) -> None:
        self.x, self.dy = rand(rows, cols, scale=3), rand(rows, cols, seed=1)
        e = np.exp(self.x - self.x.max(-1, keepdims=True, initial=-np.inf).astype(np.float64))
        self.y, self.sizes = e / e.sum(-1, keepdims=True), {"rows": rows, "cols": cols, "beta": 1}

    def forward(self, y: np.ndarray) -> Call:
        return stored(args("ct_softmax_args", x=self.x, **self.sizes), y=y)

    def backward(self, y: np.ndarray, dx: np.ndarray) -> Call:
        return stored(args("ct_softmax_args", y=y.astype(np.float32), dy=self.dy, **self.sizes), dx=dx)

    def grad(self) -> Call:
        return self.backward(self.y, self.y * (self.dy - (self.dy * self.y).sum(-1, keepdims=True)))

    def log_grad(self) -> Call:
        total = self.dy.sum(-1, keepdims=True, dtype=np.float64)
        return self.backward(np.log(self.y), self.dy - self.y * total)

    def cross_entropy(self) -> Call:
        t = np.abs(self.dy)
        dz = self.y * t.sum(-1, keepdims=True, dtype=np.float64) - t
        sizes = {"rows": self.sizes["rows"], "cols": self.sizes["cols"], "loss_scale": 1, "grad_scale": 1}
        make = args("ct_cross_entropy_args", logits=self.x, target=t, **sizes)
        return stored(make, loss=np.array(-(t * np.log(self.y)).sum()), dz=dz)


def _regression(size: int) -> tuple[Make, np.ndarray]:
    p, t = rand(size), rand(size, seed=1)
    make = args("ct_regression_loss_args", p=p, target=t, size=size, loss_scale=1, grad_scale=1)
    return make, p.astype(np.float64) - t


def squared_error(size: int) -> Call:
    make, d = _regression(size)
    return stored(make, loss=np.asarray((d * d).sum()), dp=2 * d)


def absolute_error(size: int) -> Call:
    make, d = _regression(size)
    return stored(make, loss=np.asarray(np.abs(d).sum()), dp=np.sign(d))


def chained(outer: int, inner: int) -> Call:
    x, row = rand(outer, inner), rand(1, inner)
    ops = [("ADD", 2, 0, 1, 0, 0.0), ("GREATER", 3, 2, 0, 0, 0.0), ("MUL_IMM", 2, 2, 0, 0, 2.0)]
    outputs = {"y": zeros(outer, inner), "more": np.full((outer, inner), 7, np.uint8)}
    wants = {"y": 2.0 * (x + row), "more": x + row > x}
    return Call(lambda out: chain([x, row], [(out["y"], 2), (out["more"], 3)], ops), outputs, wants)


def _reduce(x: np.ndarray, op: str, axes: tuple[int, ...]) -> Make:
    flags = [int(d in axes) for d in range(8)]
    shape = [*x.shape] + [0] * (8 - x.ndim)
    return args("ct_reduce_args", x=x, shape=shape, rank=x.ndim, scale=1.0, reduce=flags, op=abi.Reduce[op])


def summed_outside(outer: int, middle: int, inner: int) -> Call:
    x = rand(outer, middle, inner)
    return stored(_reduce(x, "SUM", (0, 2)), y=x.sum((0, 2), dtype=np.float64))


def summed_inside(outer: int, middle: int, inner: int) -> Call:
    x = rand(outer, middle, inner)
    return stored(_reduce(x, "SUM", (1,)), y=x.sum(1, dtype=np.float64))


def largest(outer: int, inner: int) -> Call:
    x = rand(outer, inner)
    return stored(_reduce(x, "MAX", (1,)), y=x.max(1, initial=-np.inf))


def copied(outer: int, middle: int, inner: int) -> Call:
    x = rand(outer, middle, inner)
    view = x.transpose(0, 2, 1)
    dense = np.ascontiguousarray(view)
    make = args(
        "ct_copy_args", x=x, shape=[*view.shape] + [0] * 5, rank=3, element_size=4,
        x_strides=elements(view, view.shape), y_strides=elements(dense, view.shape),
    )  # fmt: skip
    return stored(make, y=view)


def filled(size: int) -> Call:
    make = args("ct_fill_args", size=size, value_bits=3)
    return Call(make, {"y": np.zeros(size, np.int32)}, {"y": np.full(size, 3)})


def rows_by_index(outer: int, rows: int, width: int, count: int) -> tuple[np.ndarray, dict[str, Any]]:
    """Indices of rows that are there, and what both kernels are told of them."""
    index = np.arange(count if rows else 0, dtype=np.int32) * 5 % max(rows, 1)
    sizes = {"outer": outer, "rows": rows, "width": width, "count": len(index), "index_bytes": 4}
    return index, {"index": index, **sizes}


def gathered(outer: int, rows: int, width: int, count: int) -> Call:
    x, (index, given) = rand(outer, rows, width), rows_by_index(outer, rows, width, count)
    return stored(args("ct_gather_args", x=x, **given), y=x[:, index])


def scattered(outer: int, rows: int, width: int, count: int) -> Call:
    index, given = rows_by_index(outer, rows, width, count)
    dy, want = rand(outer, len(index), width), np.zeros((outer, rows, width))
    for j, row in enumerate(index):
        want[:, row] += dy[:, j]
    return stored(summing("ct_scatter_add_args", dy=dy, **given), update=want)


class Norm:
    """Rows about their mean, or (RMS) about 0, over their deviation; and the gradients."""

    def __init__(self, rows: int, cols: int, centred: bool) -> None:
        self.x, self.gamma, self.dy = rand(rows, cols), rand(cols), rand(rows, cols, seed=2)
        wide, self.sizes = self.x.astype(np.float64), {"rows": rows, "cols": cols}

        def mean(v: np.ndarray) -> np.ndarray:
            return v.sum(-1, keepdims=True) / cols

        self.mean = mean(wide) if centred else np.zeros((rows, 1))
        self.rstd = 1 / np.sqrt(mean((wide - self.mean) ** 2) + 1e-3)
        self.h, d = (wide - self.mean) * self.rstd, self.dy.astype(np.float64) * self.gamma
        self.dx = self.rstd * (d - (mean(d) if centred else 0) - self.h * mean(d * self.h))

    def forward(self) -> Call:
        make = args("ct_norm_args", x=self.x, gamma=self.gamma, eps=1e-3, **self.sizes)
        return stored(make, y=self.h * self.gamma, mean=self.mean, rstd=self.rstd)

    def backward(self) -> Call:
        seen = {"mean": self.mean.astype(np.float32), "rstd": self.rstd.astype(np.float32), **self.sizes}
        wanted = {"gamma_values": self.gamma, "has_gamma": 1, "has_beta": 1}
        make = summing("ct_norm_grad_args", dy=self.dy, x=self.x, **wanted, **seen)
        beta = self.dy.sum(0, dtype=np.float64)
        return stored(make, dx=self.dx, gamma=(self.dy * self.h).sum(0), beta=beta)


def updated(size: int) -> Call:
    g, w, scalars = rand(size), rand(size, seed=1), np.array([0.1, *[0] * 15], np.float32)
    sgd = args("ct_update", kind=abi.UpdateKind.SGD, scalars=scalars)
    make = lambda out: struct("ct_update_args", grad=g, size=size, update=sgd(out))  # noqa: E731
    return Call(make, {"w": w}, {"w": w - 0.1 * g})


def _normal(most: int, cols: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, dict[str, Any]]:
    """What is normalised, normal and as it lies, one over the deviations, and what calls have in common."""
    x = rand(most, cols)
    mean, variance = x.astype(np.float64).mean(0), x.astype(np.float64).var(0)
    inverse = 1 / np.sqrt(variance + 0.1)
    given = {
        "x": x,
        "gamma": rand(cols, seed=1),
        "beta": rand(cols, seed=2),
        "rows": most,
        "cols": cols,
        "eps": 0.1,
    }
    return (x - mean) * inverse, inverse, np.stack([mean, variance]), given


def batch_norm(most: int, cols: int) -> Call:
    normal, _, (mean, variance), given = _normal(most, cols)
    y = np.maximum(normal * given["gamma"] + given["beta"], 0)
    return stored(args("ct_batch_norm_args", act=abi.Act.RELU, **given), y=y, mean=mean, variance=variance)


def batch_norm_gradient(most: int, cols: int) -> Call:
    normal, inverse, statistics, given = _normal(most, cols)
    mean, variance = statistics.astype(np.float32)
    dy = rand(most, cols, seed=3)
    g = dy.astype(np.float64)
    dx = given["gamma"] * inverse * (g - g.mean(0) - normal * (g * normal).mean(0))
    make = args("ct_batch_norm_grad_args", dy=dy, mean=mean, variance=variance, **given)
    return stored(make, dx=dx, dgamma=(g * normal).sum(0), dbeta=g.sum(0))


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


def scanned(outer: int, size: int, inner: int) -> Call:
    """From the end, without the element itself."""
    x = rand(outer, size, inner)
    make = args(
        "ct_scan_args", x=x, outer=outer, size=size, inner=inner, op=abi.Reduce.SUM, exclusive=1, reverse=1
    )
    total = np.flip(np.cumsum(np.flip(x, 1), 1, np.float64), 1)
    return stored(make, y=total - x)


def multiplied(outer: int, size: int, inner: int) -> Call:
    x = rand(outer, size, inner)
    make = args("ct_scan_args", x=x, outer=outer, size=size, inner=inner, op=abi.Reduce.PROD)
    return stored(make, y=np.cumprod(x, 1, np.float64))


def extreme(outer: int, along: int, inner: int) -> Call:
    """Among few different numbers, so that the first of equals shows."""
    x = np.round(rand(outer, along, inner))
    make = args(
        "ct_extreme_args", x=x, outer=outer, size=along, inner=inner, op=abi.Reduce.MIN, place_bytes=8
    )
    return Call(make, {"place": np.full((outer, inner), 7, np.int64)}, {"place": x.argmin(1)})


def _largest(rows: int, most: int) -> tuple[np.ndarray, np.ndarray]:
    """Numbers with equals among them, and the places of the larger half."""
    x = np.round(rand(rows, most))
    return x, np.argsort(-x, axis=1, kind="stable")[:, : (most + 1) // 2]


def top(rows: int, most: int) -> Call:
    x, places = _largest(rows, most)
    make = args("ct_top_args", x=x, rows=rows, cols=most, k=places.shape[1])
    before = {"values": zeros(*places.shape), "places": np.zeros(places.shape, np.int32)}
    return Call(make, before, {"values": np.take_along_axis(x, places, 1), "places": places})


def top_gradient(rows: int, most: int) -> Call:
    x, places = _largest(rows, most)
    dy, dx = rand(*places.shape, seed=1), zeros(rows, most)
    np.put_along_axis(dx, places, dy, 1)
    return stored(args("ct_top_args", x=x, rows=rows, cols=most, k=places.shape[1], dy=dy), dx=dx)


def flat_index(count: int, width: int) -> Call:
    """Of three coordinates, the last ones counted from the end."""
    sizes = (width, 3, 2)
    at = np.stack([np.arange(count) * 7 % size for size in sizes], -1).reshape(count, 3)
    given = (at - [0, 0, 2]).astype(np.int64)
    make = args(
        "ct_flat_index_args", coordinates=given, sizes=[*sizes, 0, 0, 0, 0, 0], count=count, depth=3,
        index_bytes=8, wraps=1,
    )  # fmt: skip
    want = np.ravel_multi_index(tuple(at.T), sizes)
    return Call(make, {"flat": np.full(count, 7, np.int32)}, {"flat": want})


def clip_factor(parts: int) -> Call:
    sums = np.square(rand(parts)) + 1
    want = np.array([min(0.5 / (np.sqrt(sums.sum(dtype=np.float64)) + 1e-6), 1)])
    return stored(args("ct_clip_factor_args", sums=sums, parts=parts, limit=0.5), factor=want)


def guarded(size: int) -> Call:
    return Call(args("ct_guard_args", x=rand(size), size=size), {}, {})
