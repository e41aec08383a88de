#!/usr/bin/env python3
"""Make the demo's data and model: scikit-learn's digits, and a small network that has learned 0 to 4 of them.

python tools/dev/making/make_demo.py            (needs scikit-learn)
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

import circle_train as ct
from circle_train import format
from circle_train.ir import DType, Graph, Module, Tensor, TensorType
from circle_train.ir.graph import constant
from circle_train.model import Model
from circle_train.ops import REGISTRY
from circle_train.ops.attributes import Activation, Padding

FOLDER = Path(__file__).resolve().parents[3] / "circle_train" / "cli" / "demo_data"


def network(seed: int) -> Module:
    """conv 3×3×16, pool, conv 3×3×32, mean over the image, dense 10, softmax."""
    rng = np.random.default_rng(seed)

    def weight(name: str, *shape: int) -> Tensor:
        return constant((rng.normal(size=shape) * np.sqrt(2 / np.prod(shape[1:]))).astype(np.float32), name)

    def bias(name: str, size: int) -> Tensor:
        return constant(np.zeros(size, np.float32), name)

    graph = Graph("digits")
    image = Tensor("image", TensorType(DType.FLOAT32, (1, 8, 8, 1)), shape_signature=(-1, 8, 8, 1))
    graph.inputs.append(image)
    conv = REGISTRY["CONV_2D"](
        padding=Padding.SAME, stride_w=1, stride_h=1, fused_activation_function=Activation.RELU
    )
    x = graph.emit(conv, image, weight("conv1/w", 16, 3, 3, 1), bias("conv1/b", 16), name="conv1")
    pool = REGISTRY["MAX_POOL_2D"](
        padding=Padding.VALID, stride_w=2, stride_h=2, filter_width=2, filter_height=2
    )
    x = graph.emit(pool, x, name="pool1")
    x = graph.emit(conv, x, weight("conv2/w", 32, 3, 3, 16), bias("conv2/b", 32), name="conv2")
    x = graph.emit(pool, x, name="pool2")
    x = graph.emit(
        REGISTRY["RESHAPE"](new_shape=(-1, 128)),
        x,
        constant(np.array([-1, 128], np.int32), "shape"),
        name="flat",
    )
    dense = REGISTRY["FULLY_CONNECTED"]
    relu = dense(fused_activation_function=Activation.RELU)
    x = graph.emit(relu, x, weight("dense1/w", 48, 128), bias("dense1/b", 48), name="dense1")
    x = graph.emit(dense(), x, weight("dense2/w", 10, 48), bias("dense2/b", 10), name="dense2")
    x = graph.emit(REGISTRY["SOFTMAX"](beta=1.0), x, name="probabilities")
    graph.outputs.append(x)
    for index, node in enumerate(graph.nodes):
        node.index = index
    return Module([graph], description="reads the digits 0 to 4")


def main() -> None:
    from sklearn.datasets import load_digits

    digits = load_digits()
    order = np.random.default_rng(0).permutation(len(digits.target))
    x, y = digits.images[order].astype(np.uint8), digits.target[order].astype(np.uint8)
    FOLDER.mkdir(exist_ok=True)
    np.savez_compressed(FOLDER / "digits.npz", x=x, y=y)
    samples, labels = (x.astype(np.float32) / 16)[..., None], y.astype(np.int32)
    held_out = len(x) // 5
    known = np.flatnonzero(labels[held_out:] < 5) + held_out
    config = ct.TrainConfig(
        loss="sparse_categorical_crossentropy", optimizer=ct.optimizers.Adam(3e-3), batch_size=32
    )
    session = ct.TrainSession(Model(network(0)), config, backend="reference")
    session.fit(samples[known], labels[known], epochs=15)
    session.export(FOLDER / "digits_0_to_4.circle")
    print(format.read(FOLDER / "digits_0_to_4.circle").main.name)


if __name__ == "__main__":
    main()
