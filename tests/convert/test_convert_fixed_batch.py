"""An export made for one sample, as torch makes it unless told otherwise, runs and trains at any batch size."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import circle_train as ct

torch = pytest.importorskip("torch", reason="needs torch")
pytest.importorskip("onnx", reason="needs onnx")
nn = torch.nn
pytestmark = pytest.mark.slow


class Last(nn.Module):
    """A recurrent layer's last step, classified."""

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.head = nn.GRU(6, 8, batch_first=True), nn.Linear(8, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.layer(x)[0][:, -1])


NETS = {
    "conv1d": (
        lambda: nn.Sequential(nn.Conv1d(6, 8, 3), nn.ReLU(), nn.Flatten(), nn.Linear(240, 4)),
        (6, 32),
    ),
    "padded conv1d, pooled": (
        lambda: nn.Sequential(
            nn.Conv1d(6, 8, 3, padding=1), nn.AdaptiveAvgPool1d(1), nn.Flatten(), nn.Linear(8, 4)
        ),
        (6, 32),
    ),
    "conv2d": (
        lambda: nn.Sequential(nn.Conv2d(1, 8, 3), nn.ReLU(), nn.Flatten(), nn.Linear(288, 4)),
        (1, 8, 8),
    ),
    "gru": (Last, (5, 6)),
}


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::UserWarning")
@pytest.mark.parametrize("name", NETS)
def test_batch_of_one_grows(name: str, tmp_path: Path) -> None:
    torch.manual_seed(0)
    make, shape = NETS[name]
    net = make().eval()
    torch.onnx.export(net, torch.zeros(1, *shape), tmp_path / "net.onnx", input_names=["x"], dynamo=False)
    x = np.random.default_rng(0).normal(size=(4, *shape)).astype(np.float32)
    y = np.arange(4)
    session = ct.TrainSession(
        tmp_path / "net.onnx", ct.TrainConfig(loss="sparse_categorical_crossentropy", batch_size=4)
    )
    outputs = net(torch.from_numpy(x))
    np.testing.assert_allclose(session.predict(x), outputs.detach().numpy(), atol=1e-5)
    loss = nn.functional.cross_entropy(outputs, torch.from_numpy(y))
    assert abs(session.train_step(x, y).loss - loss.item()) < 1e-5


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::UserWarning")
@pytest.mark.parametrize("steps", [1, 5])
def test_a_batch_written_into_attention_is_run_sample_by_sample(steps: int, tmp_path: Path) -> None:
    """With one step its sizes of 1 would let wrong shapes fit."""
    layer = nn.Sequential(nn.TransformerEncoderLayer(16, 2, 32, dropout=0.0, batch_first=True)).eval()
    path = tmp_path / "net.onnx"
    torch.onnx.export(layer, torch.zeros(1, steps, 16), path, input_names=["x"], dynamo=False)
    x = np.random.default_rng(0).normal(size=(4, steps, 16)).astype(np.float32)
    wanted = layer(torch.from_numpy(x)).detach().numpy()
    np.testing.assert_allclose(ct.InferenceSession(path)(x), wanted, atol=1e-5)
    session = ct.TrainSession(path, ct.TrainConfig(loss="mse", batch_size=4))
    np.testing.assert_allclose(session.predict(x), wanted, atol=1e-5)
    assert abs(session.train_step(x, np.zeros_like(x)).loss - np.mean(wanted**2)) < 1e-5


def test_a_batch_that_no_part_fits_is_refused_with_a_remedy(tmp_path: Path) -> None:
    layer = nn.Sequential(nn.TransformerEncoderLayer(16, 2, 32, dropout=0.0, batch_first=True)).eval()
    path = tmp_path / "net.onnx"
    torch.onnx.export(layer, torch.zeros(3, 5, 16), path, input_names=["x"], dynamo=False)
    remedy = r"exported for batch size 3.* use batch_size=3, or .*dynamic_axes={'x': {0: 'batch'}}.*dynamic_shapes="
    with pytest.raises(ct.ModelError, match=remedy):
        ct.InferenceSession(path)(np.zeros((4, 5, 16), np.float32))
    with pytest.raises(ct.ModelError, match=remedy):
        ct.TrainSession(path, ct.TrainConfig(loss="mse", batch_size=4)).prepare()
