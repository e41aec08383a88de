"""Options of LiteRT's detection post-processing lie in the file as bytes: what cannot be meant is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from flatbuffers import flexbuffers
from networks import finish, new_input

import circle_train as ct
from circle_train.errors import ModelError
from circle_train.ir import DType, Graph, Quantization, TensorType
from circle_train.ir.graph import constant
from circle_train.ops import REGISTRY
from circle_train.ops.numeric.detection import SCALES

SOUND = {"max_detections": 3, "num_classes": 2, "nms_iou_threshold": 0.5, "nms_score_threshold": 0.1}
SOUND |= dict.fromkeys(SCALES, 5.0)


def types(options: dict[str, Any]) -> Any:
    op = REGISTRY["CUSTOM:TFLite_Detection_PostProcess"](bytes(flexbuffers.Dumps(options)))
    return op.infer(*(TensorType(DType.FLOAT32, shape) for shape in ((1, 6, 4), (1, 6, 3), (6, 4))))


def test_what_is_meant_is_taken() -> None:
    assert [type_.shape for type_ in types(SOUND)] == [(1, 3, 4), (1, 3), (1, 3), (1,)]


def test_anchors_of_bytes_are_what_the_file_calls_them(tmp_path: Path) -> None:
    """Weights of layers that old files call UINT8 have signs; anchors that they call so have none."""
    graph = Graph("boxes", [new_input("boxes", 1, 6, 4), new_input("scores", 1, 6, 3)])
    anchors = constant(np.arange(90, 210, 5, dtype=np.uint8).reshape(6, 4), "anchors")
    anchors.quantization = Quantization((0.0078125,), (3,))
    op = REGISTRY["CUSTOM:TFLite_Detection_PostProcess"](bytes(flexbuffers.Dumps(SOUND)))
    model = finish(graph, *graph.emit_all(op, *graph.inputs, anchors))
    model.save(tmp_path / "boxes.tflite")
    read = ct.load(tmp_path / "boxes.tflite").module.main.nodes[0].inputs[2]
    assert read is not None
    assert read.dtype is DType.UINT8 and read.quantization == anchors.quantization


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"max_detections": -3}, "expected counts from 1"),
        ({"max_detections": 1 << 50}, "expected counts from 1"),
        ({"max_detections": "three"}, "expected counts from 1"),
        ({"max_classes_per_detection": 0}, "expected counts from 1"),
        ({"num_classes": 9}, "expected those of num_classes 9"),
        ({"y_scale": 0.0}, "scales not 0"),
        ({"nms_iou_threshold": "half"}, "expected numbers"),
        ({"nms_score_threshold": float("nan")}, "expected numbers"),
    ],
)
def test_what_cannot_be_meant_is_refused(change: dict[str, Any], message: str) -> None:
    with pytest.raises(ModelError, match=message):
        types(SOUND | change)


def test_options_that_are_none_are_refused() -> None:
    op = REGISTRY["CUSTOM:TFLite_Detection_PostProcess"](b"\xff\x00\x07")
    with pytest.raises(ModelError, match="its options are damaged"):
        assert op.settings
