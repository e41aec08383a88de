"""Floats times bytes: what comes in is rounded as LiteRT rounds it, sample by sample."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from single_operator import module_of

import circle_train as ct
from circle_train.format import write
from circle_train.ops import Example, Op
from circle_train.ops.attributes import Activation, Padding
from circle_train.ops.layers.conv import Conv2D, DepthwiseConv2D
from circle_train.ops.layers.linear import FullyConnected
from circle_train.session.shipping.ship import ship

runtime = pytest.importorskip("ai_edge_litert.interpreter", reason="LiteRT (ai-edge-litert) is not installed")
IMAGE = (3, 9, 8, 32)
LAYERS = {
    "dense": (FullyConnected(), (3, 48), (40, 48)),
    "3 by 3": (Conv2D(Padding.SAME), IMAGE, (24, 3, 3, 32)),
    "cells": (Conv2D(fused_activation_function=Activation.RELU6), IMAGE, (48, 1, 1, 32)),
    "strided": (Conv2D(Padding.VALID, 2, 2), IMAGE, (48, 1, 1, 32)),
    "depthwise": (DepthwiseConv2D(Padding.SAME), IMAGE, (1, 6, 6, 32)),
    "depthwise, strided": (DepthwiseConv2D(Padding.VALID, 2, 2), IMAGE, (1, 6, 6, 32)),
    "depthwise, doubled": (
        DepthwiseConv2D(Padding.SAME, depth_multiplier=2, fused_activation_function=Activation.RELU),
        IMAGE,
        (1, 5, 5, 64),
    ),
}


@pytest.mark.parametrize("name", LAYERS)
@pytest.mark.parametrize("shift", [0.0, 3.0])
def test_rounded_as_litert_rounds(name: str, shift: float, tmp_path: Path) -> None:
    op, shape, weights = LAYERS[name]
    assert isinstance(op, Op)
    random = np.random.default_rng(len(name))
    x, w = (random.normal(size=size).astype(np.float32) for size in (shape, weights))
    b = random.normal(size=weights[3 if isinstance(op, DepthwiseConv2D) else 0]).astype(np.float32)
    (tmp_path / "float.tflite").write_bytes(write(module_of(Example(op, (x, w, b), constant=(1, 2))), "TFL3"))
    ship(ct.load(tmp_path / "float.tflite"), tmp_path / "bytes.tflite", ct.Int8(scheme="dynamic"))
    model = ct.load(tmp_path / "bytes.tflite")
    x *= np.array([1, 5, 0.1], np.float32).reshape(-1, *[1] * (x.ndim - 1))
    x += np.float32(shift)
    it = runtime.Interpreter(str(tmp_path / "bytes.tflite"), num_threads=1)
    it.allocate_tensors()
    it.set_tensor(it.get_input_details()[0]["index"], x)
    it.invoke()
    theirs, ours = it.get_tensor(it.get_output_details()[0]["index"]), ct.InferenceSession(model)(x)
    assert model.module.main.nodes[0].inputs[1].dtype.numpy == np.int8
    np.testing.assert_allclose(ours, theirs, rtol=0, atol=2e-6 * np.abs(theirs).max())
