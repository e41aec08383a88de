"""Of boxes that overlap the best, as TensorFlow's operators choose them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from heapq import heapify, heappop, heappush

import numpy as np

from circle_train.errors import ModelError
from circle_train.ir import DType, TensorType
from circle_train.ir.tensor_type import Array
from circle_train.ops.axes import Mixes
from circle_train.ops.base import Example, Op, random, register
from circle_train.ops.checks import has_rank, same_size, scalar


class Suppression(Op):
    """Base: indices of the chosen boxes, filled up with zeros, and how many they are."""

    stops_gradient = True
    axes = Mixes("boxes are sorted by their scores")
    static_inputs = ("most",)

    def types(self, boxes: TensorType, scores: TensorType, most: TensorType) -> tuple[TensorType, TensorType]:
        has_rank(self.name, "boxes", boxes, 2)
        has_rank(self.name, "scores", scores, 1)
        if not same_size(boxes.shape[1], 4) or not same_size(boxes.shape[0], scores.shape[0]):
            raise ModelError(f"{self.name}: boxes are {boxes}, scores {scores}, expected n×4 and n")
        count = scalar(self.name, "the most boxes", most)
        indices = TensorType(DType.INT32, (-1 if count is None else count,))
        return indices, TensorType(DType.INT32, ())

    def chosen(
        self, boxes: Array, scores: Array, most: int, overlap: Array, least: Array, sigma: float
    ) -> list[tuple[int, float]]:
        """Boxes from the best on with what their scores have become; those near a better one count less, or not at all."""
        waiting = [(-float(s), i, 0) for i, s in enumerate(scores) if s > least]
        heapify(waiting)
        found: list[tuple[int, float]] = []
        while waiting and len(found) < most:
            negative, box, begin = heappop(waiting)
            score, is_covered = -negative, False
            for other, _ in found[begin:][::-1]:
                shared = overlap_of(boxes[box], boxes[other])
                is_covered = bool(shared >= overlap)
                if is_covered:
                    break
                score *= float(np.exp(-0.5 / sigma * shared * shared)) if sigma > 0 else 1.0
                if score <= least:
                    break
            if is_covered:
                continue
            if score == -negative:
                found.append((box, score))
            elif score > least:
                heappush(waiting, (-score, box, len(found)))
        return found


def overlap_of(one: Array, two: Array) -> float:
    """What two boxes share, as a part of what they cover; corners come in any order."""
    low = np.minimum([one[:2], two[:2]], [one[2:], two[2:]])
    high = np.maximum([one[:2], two[:2]], [one[2:], two[2:]])
    areas = np.prod(high - low, axis=1)
    if (areas <= 0).any():
        return 0.0
    common = np.prod(np.maximum(high.min(0) - low.max(0), 0))
    return float(common / (areas.sum() - common))


def _boxes() -> tuple[Array, Array]:
    corners = random(12, 2, low=0, high=0.6).astype(np.float32)
    sizes = random(12, 2, seed=1, low=0.1, high=0.4).astype(np.float32)
    return np.concatenate([corners, corners + sizes], 1), random(12, low=0, high=1).astype(np.float32)


def _operands(most: int, overlap: float, least: float) -> tuple[Array, ...]:
    return (
        *_boxes(),
        np.array(most, np.int32),
        np.float32(overlap).reshape(()),
        np.float32(least).reshape(()),
    )


@register("NON_MAX_SUPPRESSION_V4", "NonMaxSuppressionV4Options")
class NonMaxSuppressionV4(Suppression):
    def infer(
        self, boxes: TensorType, scores: TensorType, most: TensorType, overlap: TensorType, least: TensorType
    ) -> Sequence[TensorType]:
        return self.types(boxes, scores, most)

    def forward(
        self, boxes: Array, scores: Array, most: Array, overlap: Array, least: Array
    ) -> Sequence[Array]:
        count = int(most.reshape(()))
        found = self.chosen(boxes, scores, count, overlap, least, 0.0)
        indices = np.zeros(count, np.int32)
        indices[: len(found)] = [box for box, _ in found]
        return indices, np.array(len(found), np.int32)

    @classmethod
    def examples(cls) -> Iterable[Example]:
        for most, overlap, least in ((5, 0.5, 0.0), (12, 0.1, 0.3), (20, 0.7, 0.05)):
            yield Example(cls(), _operands(most, overlap, least), constant=(3, 4), differentiable=False)


@register("NON_MAX_SUPPRESSION_V5", "NonMaxSuppressionV5Options")
class NonMaxSuppressionV5(Suppression):
    """Gives the scores too; with a sigma, boxes that overlap a better one lose of theirs."""

    def infer(
        self, boxes: TensorType, scores: TensorType, most: TensorType, overlap: TensorType, least: TensorType,
        sigma: TensorType,
    ) -> Sequence[TensorType]:  # fmt: skip
        indices, count = self.types(boxes, scores, most)
        return indices, TensorType(DType.FLOAT32, indices.shape), count

    def forward(
        self, boxes: Array, scores: Array, most: Array, overlap: Array, least: Array, sigma: Array
    ) -> Sequence[Array]:
        count = int(most.reshape(()))
        found = self.chosen(boxes, scores, count, overlap, least, float(sigma.reshape(())))
        indices, values = np.zeros(count, np.int32), np.zeros(count, np.float32)
        indices[: len(found)] = [box for box, _ in found]
        values[: len(found)] = [score for _, score in found]
        return indices, values, np.array(len(found), np.int32)

    @classmethod
    def examples(cls) -> Iterable[Example]:
        for most, overlap, least, sigma in ((5, 0.5, 0.0, 0.0), (12, 1.0, 0.1, 0.3), (8, 0.6, 0.2, 0.5)):
            values = (*_operands(most, overlap, least), np.float32(sigma).reshape(()))
            yield Example(cls(), values, constant=(3, 4, 5), differentiable=False)
