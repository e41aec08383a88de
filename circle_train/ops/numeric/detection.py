"""What stands behind an object detector in LiteRT's files: boxes out of anchors, and of those that overlap the best."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cached_property
from math import isfinite
from typing import Any

import numpy as np

from circle_train.errors import ModelError
from circle_train.ir import DType, TensorType
from circle_train.ir.tensor_type import Array
from circle_train.ops.axes import Mixes
from circle_train.ops.base import Example, Op, random, register
from circle_train.record import record

SCALES = ("y_scale", "x_scale", "h_scale", "w_scale")
COUNTS = ("max_detections", "num_classes", "max_classes_per_detection", "detections_per_class")
MOST = 1 << 16
"""Detections and classes that a file may ask for."""


@register("CUSTOM:TFLite_Detection_PostProcess")
@record
class DetectionPostProcess(Op):
    """Boxes (top, left, bottom, right), classes and scores of the detections, and how many there are."""

    custom_options: bytes = b""

    stops_gradient = True
    axes = Mixes("detections are sorted by their scores")

    @cached_property
    def settings(self) -> dict[str, Any]:
        """The options by name; they lie in the file as a FlexBuffer."""
        from flatbuffers import flexbuffers

        found = {"max_classes_per_detection": 1, "detections_per_class": 100, "use_regular_nms": False}
        try:
            found |= flexbuffers.Loads(self.custom_options)
            counts = [found[name] for name in COUNTS]
            numbers = [found[name] for name in ("nms_iou_threshold", "nms_score_threshold", *SCALES)]
        except Exception as error:  # of a reader that trusts its bytes
            raise ModelError(f"{self.name}: its options are damaged ({error!r})") from None
        if not all(type(n) is int and 1 <= n <= MOST for n in counts):
            raise ModelError(
                f"{self.name}: {', '.join(COUNTS)} are {counts}, expected counts from 1 to {MOST}"
            )
        if not all(isinstance(n, (int, float)) and isfinite(n) for n in numbers) or 0 in numbers[2:]:
            raise ModelError(
                f"{self.name}: thresholds and scales are {numbers}, expected numbers, scales not 0"
            )
        return found

    def infer(self, boxes: TensorType, scores: TensorType, anchors: TensorType) -> Sequence[TensorType]:
        if boxes.rank != 3 or scores.rank != 3 or anchors.rank != 2 or boxes.shape[0] not in (1, -1):
            raise ModelError(
                f"{self.name}: boxes are {boxes}, scores {scores}, anchors {anchors}; expected 1×n×4, 1×n×classes and n×4"
            )
        settings = self.settings
        if 0 <= scores.shape[2] < settings["num_classes"]:
            raise ModelError(
                f"{self.name}: scores are {scores}, expected those of num_classes {settings['num_classes']} at least"
            )
        per_box = 1 if settings["use_regular_nms"] else settings["max_classes_per_detection"]
        count = settings["max_detections"] * per_box
        shapes = ((1, count, 4), (1, count), (1, count), (1,))
        return [TensorType(DType.FLOAT32, shape) for shape in shapes]

    def forward(self, boxes: Array, scores: Array, anchors: Array) -> Sequence[Array]:
        settings, types = (
            self.settings,
            self.infer(*(TensorType.of(x) for x in (boxes, scores, anchors))),
        )
        corners = self._corners(boxes[0], anchors)
        classes = scores[0][:, scores.shape[2] - settings["num_classes"] :]
        found = (self._of_each_class if settings["use_regular_nms"] else self._of_the_best)(corners, classes)
        results = [np.zeros(type_.shape, np.float32) for type_ in types]
        for place, (box, label, score) in enumerate(found):
            results[0][0, place], results[1][0, place], results[2][0, place] = corners[box], label, score
        per_box = types[1].shape[1] // settings["max_detections"]
        results[3][0] = len(found) // max(min(per_box, classes.shape[1]), 1)
        return results

    def _corners(self, boxes: Array, anchors: Array) -> Array:
        y, x, h, w = (boxes[:, i] / np.float32(self.settings[name]) for i, name in enumerate(SCALES))
        middle = np.stack([y, x], 1) * anchors[:, 2:4] + anchors[:, :2]
        half = np.exp(np.stack([h, w], 1)) * anchors[:, 2:4] / 2
        return np.concatenate([middle - half, middle + half], 1)

    def _of_the_best(self, corners: Array, classes: Array) -> list[tuple[int, int, float]]:
        """Boxes by their best class, with as many classes each as are asked for."""
        count = min(self.settings["max_classes_per_detection"], classes.shape[1])
        order = np.argsort(-classes, axis=1, kind="stable")[:, :count]
        kept = self._kept(corners, classes.max(1), self.settings["max_detections"])
        return [(box, int(label), float(classes[box, label])) for box in kept for label in order[box]]

    def _of_each_class(self, corners: Array, classes: Array) -> list[tuple[int, int, float]]:
        """The best of what remains of every class."""
        most = self.settings["detections_per_class"]
        found = [
            (box, label, float(classes[box, label]))
            for label in range(classes.shape[1])
            for box in self._kept(corners, classes[:, label], most)
        ]
        return sorted(found, key=lambda one: -one[2])[: self.settings["max_detections"]]

    def _kept(self, corners: Array, scores: Array, most: int) -> list[int]:
        """Boxes from the best on, without those that overlap a better one."""
        good = np.flatnonzero(scores >= self.settings["nms_score_threshold"])
        waiting = good[np.argsort(-scores[good], kind="stable")]
        kept: list[int] = []
        while len(waiting) and len(kept) < most:
            best, waiting = waiting[0], waiting[1:]
            kept.append(int(best))
            waiting = waiting[
                ~(_overlap(corners[best], corners[waiting]) > self.settings["nms_iou_threshold"])
            ]
        return kept

    @classmethod
    def examples(cls) -> Iterable[Example]:
        from flatbuffers import flexbuffers

        settings = {
            "max_detections": 3,
            "num_classes": 2,
            "nms_iou_threshold": 0.5,
            "nms_score_threshold": 0.1,
        }
        settings |= dict.fromkeys(SCALES, 5.0)
        for more in ({"max_classes_per_detection": 2}, {"use_regular_nms": True, "detections_per_class": 2}):
            op = cls(bytes(flexbuffers.Dumps(settings | more)))
            scores = np.abs(random(1, 6, 3, seed=1)).astype(np.float32)
            anchors = np.abs(random(6, 4, seed=2)).astype(np.float32)
            yield Example(op, (random(1, 6, 4).astype(np.float32), scores, anchors), differentiable=False)


def _overlap(one: Array, others: Array) -> Array:
    """What two boxes share, as a part of what they cover; nothing where one is empty."""
    size = np.minimum(one[2:], others[:, 2:]) - np.maximum(one[:2], others[:, :2])
    common = np.prod(np.maximum(size, 0), axis=1)
    area, areas = np.prod(one[2:] - one[:2]), np.prod(others[:, 2:] - others[:, :2], axis=1)
    with np.errstate(all="ignore"):
        return np.where((area > 0) & (areas > 0), common / (area + areas - common), 0)
