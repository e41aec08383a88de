"""Makes tests/data/mnist.circle, the untrained network of the tutorials, for 28×28 images."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

import circle_train as ct
from circle_train.ir import DType, Graph, Module, Tensor, TensorType
from circle_train.ir.graph import constant
from circle_train.ops import REGISTRY
from circle_train.ops.attributes import Activation, Padding

TARGET = Path(__file__).parents[3] / "tests" / "data" / "mnist.circle"


def main() -> int:
    numbers = np.random.default_rng(0)

    def weights(name: str, *shape: int) -> Tensor:
        spread = np.sqrt(2 / np.prod(shape[1:]))
        return constant((numbers.standard_normal(shape) * spread).astype(np.float32), name)

    def bias(name: str, size: int) -> Tensor:
        return constant(np.zeros(size, np.float32), name)

    graph = Graph("main", [Tensor("image", TensorType(DType.FLOAT32, (1, 28, 28, 1)))])
    conv = REGISTRY["CONV_2D"](
        padding=Padding.SAME, stride_w=1, stride_h=1, fused_activation_function=Activation.RELU
    )
    pool = REGISTRY["MAX_POOL_2D"](
        padding=Padding.VALID, stride_w=2, stride_h=2, filter_width=2, filter_height=2
    )
    x = graph.emit(conv, graph.inputs[0], weights("conv1/w", 8, 3, 3, 1), bias("conv1/b", 8), name="conv1")
    x = graph.emit(pool, x, name="pool1")
    x = graph.emit(conv, x, weights("conv2/w", 16, 3, 3, 8), bias("conv2/b", 16), name="conv2")
    x = graph.emit(pool, x, name="pool2")
    flat = constant(np.array([1, 784], np.int32), "flat/shape")
    x = graph.emit(REGISTRY["RESHAPE"](new_shape=(1, 784)), x, flat, name="flat")
    x = graph.emit(
        REGISTRY["FULLY_CONNECTED"](), x, weights("dense/w", 10, 784), bias("dense/b", 10), name="dense"
    )
    graph.outputs = [graph.emit(REGISTRY["SOFTMAX"](beta=1.0), x, name="probabilities")]
    ct.Model(Module([graph])).save(TARGET)
    print(f"{TARGET}: {TARGET.stat().st_size} bytes")
    return 0


if __name__ == "__main__":
    sys.exit(main())
