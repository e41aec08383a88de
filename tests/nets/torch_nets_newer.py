"""More networks, of the kinds that torch's dynamo exporter writes in its own way."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch_nets import Last, image


class ConvNeXtBlock(nn.Module):
    """Depthwise 7 × 7, LayerNorm over channels last, an inverted bottleneck and a layer scale."""

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.depthwise = nn.Conv2d(3, 16, 4, 4), nn.Conv2d(16, 16, 7, padding=3, groups=16)
        self.norm = nn.LayerNorm(16, eps=1e-6)
        self.wide, self.narrow, self.head = nn.Linear(16, 64), nn.Linear(64, 16), nn.Linear(16, 4)
        self.scale = nn.Parameter(torch.full((16,), 0.5))

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x)
        inner = functional.gelu(self.wide(self.norm(self.depthwise(x).permute(0, 2, 3, 1))))
        x = x + (self.narrow(inner) * self.scale).permute(0, 3, 1, 2)
        return self.head(x.mean([2, 3]))


class Attention(nn.Module):
    """scaled_dot_product_attention of two heads; the last place looks back at all others."""

    def __init__(self, is_causal: bool) -> None:
        super().__init__()
        self.project, self.out, self.is_causal = nn.Linear(16, 48), nn.Linear(16, 3), is_causal

    def forward(self, x: Tensor) -> Tensor:
        batch, steps, _ = x.shape
        q, k, v = (part.view(batch, steps, 2, 8).transpose(1, 2) for part in self.project(x).chunk(3, -1))
        y = functional.scaled_dot_product_attention(q, k, v, is_causal=self.is_causal)
        return self.out(y.transpose(1, 2).reshape(batch, steps, 16)[:, -1])


class HidingAttention(nn.Module):
    """What is hidden is chosen away, as three kinds of code write it."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        self.project, self.out, self.kind = nn.Linear(16, 48), nn.Linear(16, 3), kind

    def forward(self, x: Tensor) -> Tensor:
        batch, steps, _ = x.shape
        q, k, v = (part.view(batch, steps, 2, 8).transpose(1, 2) for part in self.project(x).chunk(3, -1))
        seen = torch.tril(torch.ones(steps, steps, dtype=torch.bool))
        scores = q @ k.transpose(-1, -2) / 8**0.5
        if self.kind == "guarded":
            y = functional.scaled_dot_product_attention(q, k, v, attn_mask=seen)
        elif self.kind == "by numbers of the input":
            hidden = (x[..., 0] > 1.0)[:, None, None, :]
            y = scores.masked_fill(hidden, torch.finfo(torch.float32).min).softmax(-1) @ v
        else:
            y = torch.where(seen, scores, torch.tensor(-1e9)).softmax(-1) @ v
        return self.out(y.transpose(1, 2).reshape(batch, steps, 16)[:, -1])


class VisionTransformer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.patches, self.places = nn.Conv2d(3, 16, 4, 4), nn.Parameter(torch.randn(1, 16, 16) * 0.1)
        self.layer = nn.TransformerEncoderLayer(16, 4, 32, 0.0, "gelu", batch_first=True, norm_first=True)
        self.norm, self.head = nn.LayerNorm(16), nn.Linear(16, 4)

    def forward(self, x: Tensor) -> Tensor:
        x = self.patches(x).flatten(2).transpose(1, 2) + self.places
        return self.head(self.norm(self.layer(x)).mean(1))


class ShuffleBlock(nn.Module):
    """Channels split, joined and shuffled; pixels too."""

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.depthwise = nn.Conv2d(3, 8, 1), nn.Conv2d(4, 4, 3, 1, 1, groups=4)
        self.norm, self.pixels, self.head = nn.BatchNorm2d(4), nn.PixelShuffle(2), nn.Linear(2, 4)

    def forward(self, x: Tensor) -> Tensor:
        left, right = functional.hardswish(self.stem(x)).chunk(2, 1)
        x = torch.cat([left, functional.relu(self.norm(self.depthwise(right)))], 1)
        batch, channels, height, width = x.shape
        x = x.view(batch, 2, 4, height, width).transpose(1, 2).reshape(batch, channels, height, width)
        return self.head(self.pixels(x).amax([2, 3]))


class Mixture(nn.Module):
    """An einsum whose heads are weighed by a softmax."""

    def __init__(self) -> None:
        super().__init__()
        self.heads, self.head = nn.Parameter(torch.randn(4, 6, 5) * 0.3), nn.Linear(5, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(torch.einsum("bti,hio->btho", x, self.heads).softmax(2).sum((1, 2)))


def normalised() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, 1, 1), nn.GroupNorm(2, 8), nn.SiLU(), nn.Upsample(scale_factor=2, mode="bilinear"),
        nn.Conv2d(8, 8, 3, 2, 1), nn.InstanceNorm2d(8, affine=True), nn.Mish(),
        nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(32, 4),
    )  # fmt: skip


def volumes() -> nn.Module:
    return nn.Sequential(
        nn.Conv3d(2, 4, 3, padding=1), nn.ReLU(), nn.MaxPool3d(2), nn.Flatten(), nn.Linear(32, 3)
    )


NEWER_NETS: dict[str, tuple[Callable[[], nn.Module], Callable[[], Tensor]]] = {
    "convnext_block": (ConvNeXtBlock, image(2, 3, 16, 16)),
    "attention": (lambda: Attention(False), image(3, 6, 16)),
    "causal_attention": (lambda: Attention(True), image(3, 6, 16)),
    "attention_chosen": (lambda: HidingAttention("chosen"), image(3, 6, 16)),
    "attention_guarded": (lambda: HidingAttention("guarded"), image(3, 6, 16)),
    "attention_padded": (lambda: HidingAttention("by numbers of the input"), image(3, 6, 16)),
    "vision_transformer": (VisionTransformer, image(2, 3, 16, 16)),
    "shuffle_block": (ShuffleBlock, image(2, 3, 8, 8)),
    "einsum": (Mixture, image(3, 4, 6)),
    "normalised": (normalised, image(2, 3, 8, 8)),
    "volumes": (volumes, image(2, 2, 4, 4, 4)),
    "rnn": (lambda: Last(nn.RNN(5, 8, batch_first=True, bidirectional=True), 16), image(3, 6, 5)),
    "deep_gru": (lambda: Last(nn.GRU(5, 8, 2, batch_first=True, bidirectional=True), 16), image(3, 6, 5)),
}
