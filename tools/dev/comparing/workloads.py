"""Networks that the comparison of ../shared/bench does not have; tools/dev/bench.py lays this file over a copy of it.

There it stands beside `nets`, whose node lists every peer interprets.
"""

from __future__ import annotations

from typing import Any


def resnet18(nets: Any) -> Any:
    """ResNet-18 for 224x224 images and 1000 classes, its batch normalisation folded into weights and biases."""
    net = nets.Net((224, 224, 3))
    x = net.conv(-1, 64, 7, 2, "relu")
    x = net.maxpool(x, 3, 2)
    channels = 64
    for out, stride in ((64, 1), (64, 1), (128, 2), (128, 1), (256, 2), (256, 1), (512, 2), (512, 1)):
        y = net.conv(x, out, 3, stride, "relu")
        y = net.conv(y, out, 3, 1)
        past = x if stride == 1 and channels == out else net.conv(x, out, 1, stride)
        x = net.add(y, past, "relu")
        channels = out
    net.dense(net.mean(x), 1000)
    return net


def add_to(nets: Any) -> None:
    """Called as `nets` is loaded."""
    nets.WORKLOADS["r18"] = {"make": lambda: resnet18(nets), "batch": 8, "loss": "cce", "lr": 1e-4}
