"""Files of other libraries that are no models of ours, and what to do with them."""

from __future__ import annotations

import os

from circle_train.errors import ModelError

REMEDIES = {
    (".h5", ".keras", ".hdf5"): (
        "save what tf.lite.TFLiteConverter.from_keras_model(model).convert() gives as .tflite"
    ),
    (".pt", ".pth", ".bin", ".ckpt"): (
        "export the model with torch.onnx.export(model, example, 'net.onnx', dynamo=True)"
    ),
    (".pb", ".savedmodel"): (
        "save what tf.lite.TFLiteConverter.from_saved_model(folder).convert() gives as .tflite"
    ),
    (".safetensors",): (
        "it holds weights alone: load the model they belong to, then session.load_checkpoint(…)"
    ),
    (".mlmodel", ".mlpackage", ".caffemodel", ".param", ".engine", ".ort"): (
        "export the original network to .onnx or .tflite"
    ),
}
"""Suffixes, and how a model that is read here comes of them."""


def refuse_foreign(path: str) -> None:
    """Other libraries' files: say how they become one of ours."""
    suffix = os.path.splitext(path)[1].lower()
    for suffixes, remedy in REMEDIES.items():
        if suffix in suffixes:
            raise ModelError(f"{path}: a {suffix} file is no model that is read here; {remedy}")
