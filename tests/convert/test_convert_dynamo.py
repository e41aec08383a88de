"""Networks exported by torch.onnx.export(dynamo=True): one step here and there gives the same loss and weights."""

from __future__ import annotations

import contextlib
import io
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="needs torch")
pytest.importorskip("onnxscript", reason="needs onnxscript, with which torch's dynamo exporter works")
onnxruntime = pytest.importorskip("onnxruntime", reason="needs onnxruntime")

from torch_nets import NETS, bumped  # noqa: E402
from torch_nets_newer import NEWER_NETS  # noqa: E402

import circle_train as ct  # noqa: E402

pytestmark = pytest.mark.slow
ALL = NETS | NEWER_NETS
RATE = 0.05


def export(net: Any, x: Any, path: Path, **options: Any) -> None:
    with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
        warnings.simplefilter("ignore")
        torch.onnx.export(
            net, (x,), path, dynamo=True, input_names=["x"], output_names=["y"], verbose=False, **options
        )


def both_step(name: str, path: Path, **options: Any) -> tuple[Any, Any, Any]:
    """Net, input and session after one step of SGD on both sides, whose losses agree."""
    torch.manual_seed(1)
    make, sample = ALL[name]
    net, x = bumped(make()).eval(), sample()
    export(net, x, path, **options)
    labels = torch.arange(len(x)) % 3
    config = ct.TrainConfig(
        loss=ct.losses.SparseCategoricalCrossentropy(from_logits=True),
        optimizer=ct.optimizers.SGD(learning_rate=RATE), batch_size=len(x),
    )  # fmt: skip
    session = ct.TrainSession(path, config)
    loss = float(session.train_step(x.numpy(), labels.numpy().astype(np.int32)).loss)
    expected = torch.nn.functional.cross_entropy(net(x), labels)
    assert loss == pytest.approx(expected.item(), abs=1e-5)
    expected.backward()
    with torch.no_grad():
        for parameter in net.parameters():
            if parameter.grad is not None:
                parameter.sub_(RATE * parameter.grad)
    return net, x, session


def run_trained(session: Any, x: Any, folder: Path) -> Any:
    """What onnxruntime makes of the file that the session writes."""
    session.export(folder / "trained.onnx")
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    theirs = onnxruntime.InferenceSession(
        folder / "trained.onnx", options, providers=["CPUExecutionProvider"]
    )
    (found,) = theirs.run(None, {"x": x.numpy()})
    np.testing.assert_allclose(session.predict(x.numpy()), found, atol=1e-5, rtol=1e-5)
    return found


@pytest.mark.parametrize("batch", ["fixed", "open"])
@pytest.mark.parametrize("name", list(ALL))
def test_one_step_like_torch(name: str, batch: str, tmp_path: Path) -> None:
    """Unoptimized, the file holds every parameter under its own name."""
    shapes = {"dynamic_shapes": ({0: torch.export.Dim("batch")},)} if batch == "open" else {}
    net, x, session = both_step(name, tmp_path / "net.onnx", optimize=False, external_data=False, **shapes)
    for key, parameter in net.named_parameters():
        if parameter.grad is not None:
            ours = np.asarray(session.parameters[key])
            np.testing.assert_allclose(ours, parameter.detach().numpy(), atol=1e-5, rtol=1e-5, err_msg=key)
    with torch.no_grad():
        np.testing.assert_allclose(run_trained(session, x, tmp_path), net(x).numpy(), atol=1e-5, rtol=1e-4)
    if batch == "open":
        more = torch.cat([x, x])[:-1]
        with torch.no_grad():
            np.testing.assert_allclose(session.predict(more.numpy()), net(more).numpy(), atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize(
    "name", ["mlp", "resnet_block", "lstm", "bert_layer", "causal_attention", "convnext_block"]
)
def test_what_the_exporter_optimizes_trains_too(name: str, tmp_path: Path) -> None:
    """By default it folds normalisations and transposes into weights that it renames, and writes them beside the file."""
    *_, x, session = both_step(name, tmp_path / "net.onnx", dynamic_shapes=({0: torch.export.Dim("batch")},))
    run_trained(session, x, tmp_path)


class Statistics(torch.nn.Module):
    """Means and deviations over time beside what they are of."""

    def __init__(self) -> None:
        super().__init__()
        self.windows, self.last = torch.nn.Conv1d(8, 6, 5), torch.nn.Linear(18, 3)

    def forward(self, x: Any) -> Any:
        y = torch.tanh(self.windows(x.transpose(1, 2)))
        spread = y.std(2, keepdim=True).expand_as(y)
        return self.last(torch.cat([y, y.mean(2, keepdim=True).expand_as(y), spread], 1).mean(2))


def test_an_open_length_below_which_no_window_fits(tmp_path: Path) -> None:
    """The exporter's shapes say that the length is a multiple of something, the file which: not the least."""
    torch.manual_seed(1)
    net, auto = Statistics().eval(), torch.export.Dim.AUTO
    export(net, torch.randn(2, 30, 8), tmp_path / "net.onnx", dynamic_shapes=({0: auto, 1: auto},))
    session = ct.TrainSession(
        tmp_path / "net.onnx", ct.TrainConfig(loss="mse", optimizer="sgd", batch_size=2)
    )
    for length in (30, 41):
        x = torch.randn(2, length, 8)
        found = session.eval_step(x.numpy(), np.zeros((2, 3), np.float32)).loss
        assert found == pytest.approx(net(x).square().mean().item(), rel=1e-4)
