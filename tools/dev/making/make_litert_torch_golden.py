"""Exports an LSTM and an attention network for one sample; what PyTorch makes of four. Run with torch and litert-torch 0.10."""

from pathlib import Path

import litert_torch
import numpy as np
import torch
from torch import nn

HERE = Path(__file__).resolve().parents[3] / "tests" / "data" / "litert_torch"


class Lstm(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer, self.head = nn.LSTM(6, 8, batch_first=True), nn.Linear(8, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.layer(x)[0][:, -1])


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(50, 16)
        self.layer = nn.TransformerEncoderLayer(16, 2, 32, dropout=0.0, batch_first=True)
        self.head = nn.Linear(16, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.layer(self.words(x)).mean(1))


def main() -> None:
    torch.manual_seed(0)
    inputs = {"lstm": torch.randn(4, 5, 6), "attention": torch.randint(0, 50, (4, 7))}
    for name, net in {"lstm": Lstm(), "attention": Attention()}.items():
        for parameter in net.parameters():
            nn.init.normal_(parameter, 0.0, 0.3)
        net.eval()
        x, classes = inputs[name], torch.tensor([0, 3, 1, 1])
        litert_torch.convert(net, (x[:1],)).export(str(HERE / f"{name}.tflite"))
        outputs = net(x)
        loss = nn.functional.cross_entropy(outputs, classes)
        loss.backward()
        found = {"x": x, "classes": classes, "outputs": outputs, "loss": loss}
        for key, parameter in net.named_parameters():
            found[f"value:{key}"], found[f"gradient:{key}"] = parameter, parameter.grad
        np.savez_compressed(HERE / f"{name}.npz", **{k: v.detach().numpy() for k, v in found.items()})


if __name__ == "__main__":
    main()
