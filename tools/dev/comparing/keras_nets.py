#!/usr/bin/env python3
"""Random Keras models as .tflite with what Keras makes of them: losses of a few steps of SGD, and the results afterwards.

python keras_nets.py FOLDER FIRST COUNT      run by differential.py with an interpreter that has TensorFlow
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

os.environ.update(TF_CPP_MIN_LOG_LEVEL="3", CUDA_VISIBLE_DEVICES="-1")
import keras
import numpy as np
import tensorflow as tf
from keras import layers

BATCH, STEPS, RATE = 4, 4, 0.05


class Maker:
    """Layers at random. Biases that add nothing are left out of files by the converter, so all begin with something."""

    def __init__(self, case: int) -> None:
        self.rng = np.random.default_rng([case, 18])

    def pick(self, *options: Any) -> Any:
        return options[int(self.rng.integers(len(options)))]

    def integer(self, low: int, high: int) -> int:
        return int(self.rng.integers(low, high + 1))

    def bias(self) -> dict[str, Any]:
        return {"bias_initializer": keras.initializers.RandomNormal(stddev=0.2, seed=self.integer(0, 9999))}

    def activation(self) -> str | None:
        return self.pick(
            None,
            "relu",
            "tanh",
            "sigmoid",
            "elu",
            "selu",
            "relu6",
            "leaky_relu",
            "softplus",
            "gelu",
            "hard_swish",
        )

    def image(self) -> Any:
        x = inputs = layers.Input((self.integer(5, 9), self.integer(5, 9), self.integer(1, 4)))
        steps = [
            self.convolution,
            self.convolution,
            self.depthwise,
            self.separable,
            self.pool,
            self.prelu,
            self.residual,
        ]
        for _ in range(self.integer(2, 5)):
            x = self.pick(*steps)(x)
        x = self.pick(layers.GlobalAveragePooling2D(), layers.Flatten())(x)
        return inputs, self.dense(x, self.integer(1, 4))

    def convolution(self, x: Any) -> Any:
        size, dilation = self.integer(1, 3), self.pick(1, 1, 2)
        stride = 1 if dilation > 1 else self.pick(1, 1, 2)
        # Keras's own zeros for biases: the converter makes one constant of all that are alike
        bias = {} if self.pick(True, False) else self.bias()
        return layers.Conv2D(
            self.pick(1, 3, 4, 4, 8), size, strides=stride, dilation_rate=dilation, padding="same",
            activation=self.activation(), **bias,
        )(x)  # fmt: skip

    def depthwise(self, x: Any) -> Any:
        return layers.DepthwiseConv2D(
            self.integer(1, 3),
            depth_multiplier=self.integer(1, 2),
            padding="same",
            activation=self.activation(),
            **self.bias(),
        )(x)

    def separable(self, x: Any) -> Any:
        return layers.SeparableConv2D(
            self.integer(2, 5), 3, padding="same", activation=self.activation(), **self.bias()
        )(x)

    def pool(self, x: Any) -> Any:
        kind = self.pick(layers.MaxPooling2D, layers.AveragePooling2D)
        return (
            kind(2, strides=self.pick(1, 2), padding=self.pick("same", "valid"))(x)
            if min(x.shape[1:3]) > 1
            else x
        )

    def prelu(self, x: Any) -> Any:
        return layers.PReLU(
            alpha_initializer=keras.initializers.RandomNormal(0.2, 0.05, seed=self.integer(0, 9999)),
            shared_axes=[1, 2],
        )(x)

    def residual(self, x: Any) -> Any:
        return layers.Add()(
            [x, layers.Conv2D(x.shape[-1], 3, padding="same", activation=self.activation(), **self.bias())(x)]
        )

    def dense(self, x: Any, width: int, activation: str | None = None) -> Any:
        return layers.Dense(width, activation=activation, **self.bias())(x)

    def table(self) -> Any:
        x = inputs = layers.Input((self.integer(2, 8),))
        tied = layers.Dense(x.shape[-1], **self.bias()) if self.pick(True, False) else None
        for _ in range(self.integer(1, 4)):
            x = (
                self.dense(
                    x, self.integer(2, 8), self.activation() or "tanh"
                )  # a linear one's bias goes to the next
                if tied is None
                else layers.Activation("tanh")(tied(x))
            )
            if tied is None and self.pick(
                True, False
            ):  # behind a shared layer a file does not say which norms are one
                shifts = keras.initializers.RandomNormal(0, 0.1, seed=self.integer(0, 9999))
                x = layers.LayerNormalization(beta_initializer=shifts, epsilon=1e-3)(x)
        return inputs, self.dense(x, self.integer(1, 4))

    def words(self) -> Any:
        x = inputs = layers.Input((self.integer(3, 7),), dtype="int32")
        x = layers.Embedding(11, self.integer(2, 5))(x)
        x = layers.Conv1D(
            self.integer(1, 5), self.integer(1, 3), activation=self.activation(), **self.bias()
        )(x)
        return inputs, self.dense(layers.GlobalAveragePooling1D()(x), self.integer(1, 4))

    def series(self) -> Any:
        x = inputs = layers.Input((self.integer(2, 5), self.integer(1, 4)))
        kind = self.pick(layers.LSTM, layers.GRU, layers.SimpleRNN)
        x = kind(self.integer(2, 5), unroll=True, bias_initializer=self.bias()["bias_initializer"])(x)
        return inputs, self.dense(x, self.integer(1, 3))


def make(case: int, folder: Path) -> None:
    """One model with its data, losses and results."""
    keras.utils.set_random_seed(case)
    maker = Maker(case)
    inputs, output = (maker.image, maker.table, maker.words, maker.series)[case % 4]()
    model = keras.Model(inputs, output)
    shape = (BATCH, *inputs.shape[1:])
    words = inputs.dtype == "int32"
    x = (
        maker.rng.integers(0, 11, shape).astype(np.int32)
        if words
        else maker.rng.normal(size=shape).astype(np.float32)
    )
    y = maker.rng.normal(size=(BATCH, output.shape[-1])).astype(np.float32)
    converted = tf.lite.TFLiteConverter.from_keras_model(model).convert()
    losses = []
    for _ in range(STEPS):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((model(x) - y) ** 2)
        variables = model.trainable_variables
        for variable, gradient in zip(variables, tape.gradient(loss, variables), strict=True):
            variable.assign_sub(RATE * tf.convert_to_tensor(gradient))
        losses.append(float(loss))
    (folder / f"{case:06d}.tflite").write_bytes(converted)
    np.savez(folder / f"{case:06d}.npz", x=x, y=y, losses=losses, final=model(x).numpy(), rate=RATE)


if __name__ == "__main__":
    target, first, count = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
    for number in range(first, first + count):
        make(number, target)
        keras.backend.clear_session()
