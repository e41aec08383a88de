"""Samples varied at random, so that few of them teach more."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from circle_train.ir.tensor_type import Array

SMALLEST_CROP = 0.8
"""Of a picture's height and width."""


def vary_image(pixels: Array, how: Sequence[str], random: np.random.Generator) -> Array:
    """Mirrored, cut and coloured otherwise; pixels 0 … 255, height × width × channels."""
    if "flip" in how and random.random() < 0.5:
        pixels = pixels[:, ::-1]
    if "crop" in how:
        pixels = _cut(pixels, random)
    if "colour" not in how:
        return pixels
    light, contrast = random.uniform(-25, 25), random.uniform(0.8, 1.2)
    tint = random.uniform(0.92, 1.08, pixels.shape[2])
    middle = pixels.mean()
    varied: Array = np.clip(((pixels - middle) * contrast + middle + light) * tint, 0, 255)
    return varied


def _cut(pixels: Array, random: np.random.Generator) -> Array:
    """A part of the picture in its whole size, smoothly: no photograph has steps of a pixel."""
    cut: Array = pixels.astype(np.float32)
    for axis, size in enumerate(pixels.shape[:2]):
        part = random.uniform(SMALLEST_CROP, 1) * size
        start = random.uniform(0, size - part)
        places = np.clip(start + (np.arange(size) + 0.5) * part / size - 0.5, 0, size - 1)
        first = places.astype(int)
        share = (places - first).astype(np.float32).reshape(-1, *[1] * (2 - axis))
        cut = cut.take(first, axis) * (1 - share) + cut.take(np.minimum(first + 1, size - 1), axis) * share
    return cut


def vary_sound(samples: Array, how: Sequence[str], random: np.random.Generator) -> Array:
    """Shifted in time, faster or slower, louder or softer, with noise; samples -1 … 1."""
    count = len(samples)
    if "speed" in how:
        places = np.arange(count) * random.uniform(0.9, 1.1)
        samples = np.interp(places, np.arange(count), samples, right=0.0)
    if "shift" in how:
        step = int(random.integers(-count // 10, count // 10 + 1))
        moved = np.zeros_like(samples)
        kept = slice(max(step, 0), count + min(step, 0))
        moved[kept] = samples[max(-step, 0) : count - max(step, 0)]
        samples = moved
    if "volume" in how:
        samples = samples * random.uniform(0.7, 1.3)
    if "noise" in how:
        level = random.uniform(0, 0.02) * max(float(np.abs(samples).max(initial=0)), 1e-3)
        samples = samples + random.normal(0, level, count)
    varied: Array = np.clip(samples, -1, 1)
    return varied
