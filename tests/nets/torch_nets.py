"""Small networks of the kinds that people export from PyTorch, with an input and a label each."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn


def bumped(module: nn.Module) -> nn.Module:
    """Statistics, scales and biases unlike those of fresh layers, which the exporter would store only once."""
    generator = torch.Generator().manual_seed(7)
    for parameter in module.parameters():
        if parameter.ndim == 1:
            parameter.data.add_(torch.empty_like(parameter).normal_(0, 0.2, generator=generator))
    for layer in module.modules():
        if isinstance(layer, (nn.BatchNorm1d, nn.BatchNorm2d)):
            layer.running_mean.normal_(generator=generator)
            layer.running_var.uniform_(0.5, 2.0, generator=generator)
    return module


class Last(nn.Module):
    """What a recurrent layer says at the end, through a head."""

    def __init__(self, layer: nn.Module, width: int) -> None:
        super().__init__()
        self.layer, self.head = layer, nn.Linear(width, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.layer(x)[0][:, -1])


class MobileNetV2Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 8, 3, 2, 1, bias=False), nn.BatchNorm2d(8), nn.ReLU6())
        self.block = nn.Sequential(
            nn.Conv2d(8, 24, 1, bias=False), nn.BatchNorm2d(24), nn.ReLU6(),
            nn.Conv2d(24, 24, 3, 1, 1, groups=24, bias=False), nn.BatchNorm2d(24), nn.ReLU6(),
            nn.Conv2d(24, 8, 1, bias=False), nn.BatchNorm2d(8),
        )  # fmt: skip
        self.head = nn.Linear(8, 4)

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x)
        return self.head((x + self.block(x)).mean([2, 3]))


class ResNetBlock(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(
            nn.Conv2d(3, 8, 7, 2, 3, bias=False), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(3, 2, 1)
        )
        self.main = nn.Sequential(
            nn.Conv2d(8, 16, 3, 2, 1, bias=False), nn.BatchNorm2d(16), nn.ReLU(),
            nn.Conv2d(16, 16, 3, 1, 1, bias=False), nn.BatchNorm2d(16),
        )  # fmt: skip
        self.short = nn.Sequential(nn.Conv2d(8, 16, 1, 2, bias=False), nn.BatchNorm2d(16))
        self.head = nn.Linear(16, 4)

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x)
        x = torch.relu(self.main(x) + self.short(x))
        return self.head(torch.flatten(nn.functional.adaptive_avg_pool2d(x, 1), 1))


class UNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.down = nn.Sequential(nn.Conv2d(2, 8, 3, 1, 1), nn.ReLU())
        self.deep = nn.Sequential(nn.MaxPool2d(2), nn.Conv2d(8, 16, 3, 1, 1), nn.ReLU())
        self.up = nn.ConvTranspose2d(16, 8, 2, 2)
        self.out = nn.Sequential(nn.Conv2d(16, 8, 3, 1, 1), nn.ReLU(), nn.Conv2d(8, 4, 1))

    def forward(self, x: Tensor) -> Tensor:
        a = self.down(x)
        return self.out(torch.cat([a, self.up(self.deep(a))], 1)).mean([2, 3])


class SqueezeExcite(nn.Module):
    """An EfficientNet-like block."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 12, 3, 2, 1), nn.BatchNorm2d(12), nn.SiLU())
        self.squeeze = nn.Sequential(
            nn.AdaptiveAvgPool2d(1), nn.Conv2d(12, 4, 1), nn.SiLU(), nn.Conv2d(4, 12, 1), nn.Sigmoid()
        )
        self.tail = nn.Sequential(
            nn.Conv2d(12, 8, 1), nn.BatchNorm2d(8), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 4)
        )

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x)
        return self.tail(x * self.squeeze(x))


class BertLayer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(20, 16)
        self.layer = nn.TransformerEncoderLayer(16, 2, 32, 0.0, "gelu", batch_first=True)
        self.head = nn.Linear(16, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.layer(self.embed(x))[:, 0])


def image(*shape: int) -> Callable[[], Tensor]:
    return lambda: torch.randn(*shape, generator=torch.Generator().manual_seed(3))


NETS: dict[str, tuple[Callable[[], nn.Module], Callable[[], Tensor]]] = {
    "mlp": (lambda: nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 3)), image(4, 6)),
    "cnn_bn": (
        lambda: nn.Sequential(
            nn.Conv2d(2, 6, 3), nn.BatchNorm2d(6), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(54, 3)
        ),
        image(4, 2, 8, 8),
    ),
    "mobilenet_v2_block": (MobileNetV2Block, image(4, 3, 16, 16)),
    "resnet_block": (ResNetBlock, image(4, 3, 32, 32)),
    "unet": (UNet, image(2, 2, 16, 16)),
    "squeeze_excite": (SqueezeExcite, image(4, 3, 16, 16)),
    "lstm": (lambda: Last(nn.LSTM(5, 8, 2, batch_first=True, bidirectional=True), 16), image(3, 6, 5)),
    "gru": (lambda: Last(nn.GRU(5, 8, batch_first=True), 8), image(3, 6, 5)),
    "bert_layer": (BertLayer, lambda: torch.arange(24).reshape(3, 8) % 20),
    "conv1d_audio": (
        lambda: nn.Sequential(
            nn.Conv1d(1, 8, 9, 2, 4), nn.BatchNorm1d(8), nn.LeakyReLU(),
            nn.Conv1d(8, 8, 3, padding=2, dilation=2), nn.GELU(),
            nn.AdaptiveAvgPool1d(1), nn.Flatten(), nn.Linear(8, 3),
        ),
        image(4, 1, 64),
    ),
    "grouped_dilated": (
        lambda: nn.Sequential(
            nn.Conv2d(4, 8, 3, padding=2, dilation=2, groups=2), nn.PReLU(8),
            nn.Conv2d(8, 16, 3, 2, 1, groups=8), nn.Hardswish(),
            nn.AvgPool2d(3, 2, 1), nn.Flatten(), nn.Linear(64, 3),
        ),
        image(3, 4, 8, 8),
    ),
}  # fmt: skip


def export(net: nn.Module, x: Tensor, path: Any, **options: Any) -> None:
    """An ONNX file with symbolic batch, in eval mode and with nothing folded."""
    torch.onnx.export(
        net.eval(), (x,), str(path), dynamo=False, input_names=["x"], output_names=["y"],
        training=torch.onnx.TrainingMode.EVAL, do_constant_folding=False,
        dynamic_axes={"x": {0: "batch"}, "y": {0: "batch"}}, **options,
    )  # fmt: skip
