"""Attention as onnxruntime joins it: heads side by side in the last axis, rotations from tables, fewer keys than queries."""

from __future__ import annotations

import numpy as np

from circle_train.convert.building.builder import Builder
from circle_train.convert.building.refusal import Refusal
from circle_train.convert.building.registry import Call, handles
from circle_train.convert.handlers.layers.norm import normalized
from circle_train.convert.handlers.microsoft.fused import MICROSOFT
from circle_train.convert.handlers.numeric.linear import product
from circle_train.ir import DType, Tensor
from circle_train.ir.size import Size

FAR_BELOW = -10000.0


def heads(b: Builder, x: Tensor, count: int) -> Tensor:
    """batch × steps × (heads · width) as batch × heads × steps × width."""
    n, steps, width = b.shape(x)
    return b.transpose(b.reshape(x, (n, steps, count, width // count)), (0, 2, 1, 3))


def joined(b: Builder, x: Tensor) -> Tensor:
    """The other way."""
    n, count, steps, width = b.shape(x)
    return b.reshape(b.transpose(x, (0, 2, 1, 3)), (n, steps, count * width))


def attended(b: Builder, q: Tensor, k: Tensor, v: Tensor, scale: float, added: list[Tensor]) -> Tensor:
    """softmax(q kᵀ · scale + what is added) v, per head."""
    scores = b(
        "MUL", b("BATCH_MATMUL", q, b.transpose(k, (0, 1, 3, 2))), b.like(q, scale or b.shape(q)[3] ** -0.5)
    )
    for term in added:
        scores = b("ADD", scores, term)
    return b("BATCH_MATMUL", b("SOFTMAX", scores, beta=1.0), v)


def causal(b: Builder, steps: int, keys: int, below: float) -> Tensor:
    """What forbids each step the keys behind it; the last step sees all."""
    later = b(
        "GREATER", b.numbers(keys), b("ADD", b.reshape(b.numbers(steps), (steps, 1)), _scalar(b, keys, steps))
    )
    return b("MUL", b.cast(later, DType.FLOAT32), b.constant(below, np.float32))


def _scalar(b: Builder, keys: int, steps: int) -> Tensor:
    return b.reshape(b.integers([keys - steps]), ())


@handles("Attention", domain=MICROSOFT)
def attention(c: Call) -> Tensor:
    b, count = c.b, int(c.required("num_heads"))
    if any(c.optional(i) is not None for i in (4, 6)) or c.attr("do_rotary", 0):
        raise Refusal("it remembers keys of earlier calls, or rotates them")
    projected = product(b, c[0], c[1])
    if (bias := c.optional(2)) is not None:
        projected = b("ADD", projected, bias)
    total = int(b.shape(projected)[2])
    sizes = [int(n) for n in c.attr("qkv_hidden_sizes") or [total // 3] * 3]
    parts = b.all("SPLIT_V", projected, b.integers(sizes), b.constant(2, np.int32), num_splits=3)
    q, k, v = (heads(b, part, count) for part in parts)
    below = float(c.attr("mask_filter_value", FAR_BELOW))
    added = [] if c.optional(3) is None else [_mask(c, c[3], below)]
    added += [t for t in (c.optional(5),) if t is not None]
    if c.attr("unidirectional", 0):
        added.append(causal(b, b.shape(q)[2], b.shape(k)[2], below))
    return joined(b, attended(b, q, k, v, float(c.attr("scale", 0.0)), added))


def _mask(c: Call, mask: Tensor, below: float) -> Tensor:
    """0 where the mask is 1; far below where it is 0."""
    b, shape = c.b, c.b.shape(mask)
    if mask.type.rank not in (2, 3):
        raise Refusal(f"its mask is {mask.type}, expected batch × keys or batch × steps × keys")
    wide = (shape[0], 1, *((1, shape[1]) if len(shape) == 2 else shape[1:]))
    kept = b.reshape(b.cast(mask, DType.FLOAT32), wide)
    return b("MUL", b("SUB", b.like(kept, 1), kept), b.like(kept, below))


@handles("MultiHeadAttention", domain=MICROSOFT)
def multi_head_attention(c: Call) -> Tensor:
    b, count = c.b, int(c.required("num_heads"))
    if any(t is not None for t in c.inputs[6:]) or c.optional(1) is None or c.optional(2) is None:
        raise Refusal("it remembers keys of earlier calls, or has them packed with its queries")
    parts = [c[0], c[1], c[2]]
    if (bias := c.optional(3)) is not None:
        sizes = [int(b.shape(part)[-1]) for part in (c[0], c[0], c[2])]
        biases = b.all("SPLIT_V", bias, b.integers(sizes), b.constant(0, np.int32), num_splits=3)
        parts = [b("ADD", part, one) for part, one in zip(parts, biases, strict=True)]
    q, k, v = (part if part.type.rank == 4 else heads(b, part, count) for part in parts)
    below = float(c.attr("mask_filter_value", FAR_BELOW))
    added = [] if c.optional(4) is None else [_mask(c, c[4], below)]
    added += [] if c.optional(5) is None else [c[5]]
    if c.attr("unidirectional", 0):
        added.append(causal(b, b.shape(q)[2], b.shape(k)[2], below))
    return joined(b, attended(b, q, k, v, float(c.attr("scale", 0.0)), added))


@handles("GroupQueryAttention", domain=MICROSOFT)
def group_query_attention(c: Call) -> list[Tensor]:
    """Of a whole text at once: each group of query heads shares a head of keys and values."""
    b, count, groups = c.b, int(c.required("num_heads")), int(c.required("kv_num_heads"))
    past = c.optional(3)
    if past is not None and (isinstance(b.shape(past)[2], Size) or b.shape(past)[2]):
        raise Refusal(
            "it goes on from keys of earlier calls; export the model without its memory (use_cache=False)"
        )
    if c.attr("local_window_size", -1) not in (-1, 0) or float(c.attr("softcap", 0.0)):
        raise Refusal("it looks back only so far, or caps its scores")
    if c.optional(1) is None:
        widths = [int(b.shape(c[0])[2]) // (count + 2 * groups) * n for n in (count, groups, groups)]
        parts = b.all("SPLIT_V", c[0], b.integers(widths), b.constant(2, np.int32), num_splits=3)
    else:
        parts = [c[0], c[1], c[2]]
    q, k, v = (heads(b, part, n) for part, n in zip(parts, (count, groups, groups), strict=True))
    if c.attr("do_rotary", 0):
        steps = b.reshape(b.numbers(b.shape(q)[2]), (1, b.shape(q)[2]))
        turned = bool(c.attr("rotary_interleaved", 0))
        q, k = (rotated(b, t, steps, c[7], c[8], turned) for t in (q, k))
    added = [causal(b, b.shape(q)[2], b.shape(k)[2], FAR_BELOW * 100)]
    wide_k, wide_v = (_repeated(b, t, count // groups) for t in (k, v))
    y = joined(b, attended(b, q, wide_k, wide_v, float(c.attr("scale", 0.0)), added))
    return [y, k, v][: c.output_count]


def _repeated(b: Builder, x: Tensor, times: int) -> Tensor:
    """Each head so many times."""
    n, count, steps, width = b.shape(x)
    wide = b("TILE", b.reshape(x, (n, count, 1, steps * width)), b.integers([1, 1, times, 1]))
    return b.reshape(wide, (n, count * times, steps, width))


def rotated(b: Builder, x: Tensor, places: Tensor, cos: Tensor, sin: Tensor, is_interleaved: bool) -> Tensor:
    """batch × heads × steps × width, pairs of the first entries turned by the angles of their places."""
    n, count, steps, width = b.shape(x)
    half = int(b.shape(cos)[1])
    turned = 2 * half
    rows = b.shape(places)
    c, s = (
        b.reshape(b("GATHER", t, places, axis=0, batch_dims=0), (rows[0], 1, rows[1], half))
        for t in (cos, sin)
    )
    first, rest = x, None
    if turned < int(width):
        first, rest = b.all(
            "SPLIT_V", x, b.integers([turned, int(width) - turned]), b.constant(3, np.int32), num_splits=2
        )
    if is_interleaved:
        pairs = b.reshape(first, (n, count, steps * half, 2))
        one, two = (b.reshape(t, (n, count, steps, half)) for t in b.all("UNPACK", pairs, num=2, axis=3))
    else:
        one, two = b.all("SPLIT", b.constant(3, np.int32), first, num_splits=2)
    left = b("SUB", b("MUL", one, c), b("MUL", two, s))
    right = b("ADD", b("MUL", one, s), b("MUL", two, c))
    if is_interleaved:
        flat = [b.reshape(t, (n, count, steps * half)) for t in (left, right)]
        made = b.reshape(b("PACK", *flat, values_count=2, axis=3), (n, count, steps, turned))
    else:
        made = b("CONCATENATION", left, right, axis=3)
    return made if rest is None else b("CONCATENATION", made, rest, axis=3)


@handles("RotaryEmbedding", domain=MICROSOFT)
def rotary_embedding(c: Call) -> Tensor:
    b, x, places = c.b, c[0], c[1]
    flat = x.type.rank == 3
    if flat:
        named = int(c.attr("num_heads", 0)) if c.attr("rotary_embedding_dim", 0) else 0
        count = named or int(b.shape(x)[2]) // (2 * int(b.shape(c[2])[1]))
        x = heads(b, x, count)
    steps = b.shape(x)[2]
    if places.type.size == 1 and places.type.rank == 1:
        places = b("ADD", b.reshape(b.numbers(steps), (1, steps)), b.cast(places, DType.INT32))
    y = rotated(b, x, places, c[2], c[3], bool(c.attr("interleaved", 0)))
    return joined(b, y) if flat else y


@handles("EmbedLayerNormalization", domain=MICROSOFT)
def embed_layer_normalization(c: Call) -> list[Tensor]:
    """The norm of words, places and segments added, and how many entries the mask has."""
    b, words = c.b, c[0]
    n, steps = b.shape(words)
    total = b("GATHER", c[2], words, axis=0, batch_dims=0)
    places = c.optional(8)
    at = b.reshape(b.numbers(steps), (1, steps)) if places is None else places
    total = b("ADD", total, b("GATHER", c[3], at, axis=0, batch_dims=0))
    if c.optional(1) is not None and c.optional(4) is not None:
        total = b("ADD", total, b("GATHER", c[4], c[1], axis=0, batch_dims=0))
    y = b("ADD", b("MUL", normalized(b, total, (2,), float(c.attr("epsilon", 1e-12)))[0], c[5]), c[6])
    mask = c.optional(7)
    counted = b("FILL", b.integers([n]), b.constant(0, np.int32)) if mask is None else b(
        "SUM", b.cast(mask, DType.INT32), b.integers([1]), keep_dims=False
    )  # fmt: skip
    return [y, counted, total][: c.output_count]
