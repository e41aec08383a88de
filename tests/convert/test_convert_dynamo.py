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
