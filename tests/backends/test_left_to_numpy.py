"""Which float operators, or gradients of them, have no kernel, and why."""

from __future__ import annotations

import numpy as np
import pytest
from single_operator import examples
from test_backends import dense, graph_of

from circle_train.backends import native
from circle_train.backends.native import Native
from circle_train.ops.internal.gradient import Gradient, Gradients

pytestmark = pytest.mark.skipif(not native.is_available(), reason="the native engine was not built")

IMAGES = "an image kernel of its own is still to be written: it runs as products and copies in numpy"
RARE = "few networks have it, and those little of it: numpy's own loops take less time than a kernel's memory is worth"
FILE = "it belongs to how a file holds numbers; training runs on float32 masters behind it"
CONTROL = "it runs other programs"
LEFT = {
    "BATCH_MATMUL": "only where matrices are broadcast along one of several batch axes",
    "BIDIRECTIONAL_SEQUENCE_LSTM": "only with peepholes, projections, clipping or coupled gates",
    "COMPLEX_ABS": RARE,
    "CONCATENATION": "only with a fused activation",
    "CONV_3D": IMAGES,
    "CONV_3D_TRANSPOSE": IMAGES,
    "CUSTOM:TFLite_Detection_PostProcess": "boxes are sorted and dropped by what the data says",
    "CUSTOM:circle_train.onnx": "operators of ONNX that Circle has not, as ONNX defines them",
    "DENSIFY": FILE,
    "DEQUANTIZE": FILE,
    "DILATE": RARE,
    "DYNAMIC_UPDATE_SLICE": "where it writes is data, and a step of a text generator's memory is small",
    "EMBEDDING_LOOKUP_SPARSE": RARE,
    "FAKE_QUANT": RARE,
    "GATHER": "only with batch_dims and an axis behind them",
    "HASHTABLE_LOOKUP": RARE,
    "IF": CONTROL,
    "IMAG": RARE,
    "L2_POOL_2D": IMAGES,
    "LOCAL_RESPONSE_NORMALIZATION": RARE,
    "LSTM": RARE,
    "MATRIX_DIAG": RARE,
    "MATRIX_SET_DIAG": RARE,
    "NON_MAX_SUPPRESSION_V5": "boxes are sorted and dropped by what the data says",
    "PADV2": "the gradient of the padded value, which is a constant",
    "QUANTIZE": FILE,
    "RANDOM_STANDARD_NORMAL": "a generator's numbers, once a step and few of them",
    "RANDOM_UNIFORM": "a generator's numbers, once a step and few of them",
    "RANGE": "known before a step",
    "REAL": RARE,
    "REDUCE_PROD": RARE,
    "REDUCE_WINDOW": RARE,
    "REVERSE_SEQUENCE": RARE,
    "RNN": RARE,
    "RMS_NORM": "only with one factor for all columns",
    "SPARSE_TO_DENSE": RARE,
    "STABLEHLO_CASE": CONTROL,
    "STABLEHLO_CBRT": RARE,
    "STABLEHLO_COMPOSITE": "what it is composed of is put in its place",
    "STABLEHLO_GATHER": RARE,
    "STABLEHLO_PAD": RARE,
    "STABLEHLO_REDUCE_WINDOW": RARE,
    "STABLEHLO_SCATTER": RARE,
    "SVDF": RARE,
    "UNIDIRECTIONAL_SEQUENCE_LSTM": "only with peepholes, projections, clipping, coupled gates, norms or diagonals",
    "UNIQUE": "how much it gives depends on the data",
    "UNSORTED_SEGMENT_MAX": RARE,
    "UNSORTED_SEGMENT_MIN": RARE,
    "UNSORTED_SEGMENT_PROD": RARE,
    "UNSORTED_SEGMENT_SUM": "its gradient alone: " + RARE,
    "WHILE": CONTROL,
}
"""By operator, gradients included. A kernel that is written takes its line away."""


def left_to_numpy() -> set[str]:
    """Over all examples, after fusing: operators whose nodes give float32s and have no kernel."""
    engine, left = Native(1), set[str]()
    for parameter in examples():
        graph, known = graph_of(parameter.values[0])
        engine.fuse(graph, graph.outputs)
        for node in graph.nodes:
            inputs = [
                None if t is None else known.get(t, t.data if t.is_constant else None) for t in node.inputs
            ]
            contiguous = [None if a is None else dense(a) for a in inputs]
            with np.errstate(all="ignore"):
                made = [dense(a) for a in node.op.compute(contiguous)]
            known.update(zip(node.outputs, made, strict=True))
            is_float = any(a.dtype == np.float32 and a.size for a in made)
            if node.op.view_input is None and is_float and engine.bind(node, contiguous, made) is None:
                left.add(str(node.op.of.name if isinstance(node.op, (Gradient, Gradients)) else node.op.name))
    return left


def test_what_has_no_kernel_says_why() -> None:
    found = left_to_numpy()
    assert found == LEFT.keys(), (
        f"more: {sorted(found - LEFT.keys())}, no longer: {sorted(LEFT.keys() - found)}"
    )
