"""Networks exported from PyTorch: one training step here and there gives the same loss and weights."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")
onnx = pytest.importorskip("onnx")
onnxruntime = pytest.importorskip("onnxruntime")

from torch_nets import NETS, bumped, export  # noqa: E402

import circle_train as ct  # noqa: E402

RATE = 0.05


@pytest.fixture(params=list(NETS))
def trained(request: pytest.FixtureRequest, tmp_path: Path) -> dict[str, Any]:
    """A net, its ONNX file, and what one step of SGD made of both."""
    torch.manual_seed(1)
    make, sample = NETS[request.param]
    net, x = bumped(make()).eval(), sample()
    path = tmp_path / "net.onnx"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        export(net, x, path)
    labels = torch.arange(len(x)) % 3
    config = ct.TrainConfig(
        loss=ct.losses.SparseCategoricalCrossentropy(from_logits=True),
        optimizer=ct.optimizers.SGD(learning_rate=RATE), batch_size=len(x),
    )  # fmt: skip
    session = ct.TrainSession(str(path), config)
    loss = float(session.train_step(x.numpy(), labels.numpy().astype(np.int32)).loss)
    logits = net(x)
    expected = torch.nn.functional.cross_entropy(logits, labels)
    expected.backward()
    with torch.no_grad():
        for parameter in net.parameters():
            if parameter.grad is not None:
                parameter.sub_(RATE * parameter.grad)
    return {
        "net": net, "x": x, "path": path, "session": session, "loss": loss, "expected": expected.item(),
        "folder": tmp_path,
    }  # fmt: skip


def test_one_step_like_torch(trained: dict[str, Any]) -> None:
    assert trained["loss"] == pytest.approx(trained["expected"], abs=1e-5)
    session, net = trained["session"], trained["net"]
    ours = {name: np.asarray(session.parameters[name]) for name in session.parameters}
    compared = 0
    for name, parameter in net.named_parameters():
        if name in ours:
            np.testing.assert_allclose(
                ours[name], parameter.detach().numpy(), atol=1e-5, rtol=1e-5, err_msg=name
            )
            compared += 1
    recurrent = any(isinstance(layer, torch.nn.RNNBase) for layer in net.modules())
    assert compared == len(list(net.parameters())) or (recurrent and compared >= 2)


def test_back_into_the_file(trained: dict[str, Any]) -> None:
    session, x = trained["session"], trained["x"].numpy()
    out = trained["folder"] / "trained.onnx"
    session.export(out)
    before, after = onnx.load(trained["path"]), onnx.load(out)
    assert [n.SerializeToString() for n in before.graph.node] == [
        n.SerializeToString() for n in after.graph.node
    ]
    assert [i.name for i in before.graph.initializer] == [i.name for i in after.graph.initializer]
    assert before.opset_import == after.opset_import
    feeds = {"x": x}
    (theirs,) = onnxruntime.InferenceSession(str(out), providers=["CPUExecutionProvider"]).run(None, feeds)
    with torch.no_grad():
        np.testing.assert_allclose(theirs, trained["net"](trained["x"]).numpy(), atol=1e-5, rtol=1e-4)
    np.testing.assert_allclose(session.predict(x), theirs, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize(
    "name", ["mobilenet_v2_block", "resnet_block", "squeeze_excite", "unet", "grouped_dilated"]
)
def test_images_are_turned_at_the_input_alone(name: str, tmp_path: Path) -> None:
    make, sample = NETS[name]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        export(make(), sample(), tmp_path / "net.onnx")
    for io, expected in (("nchw", 1), ("nhwc", 0)):
        operators = [operator.name for operator in ct.load(tmp_path / "net.onnx", io=io).operators]
        assert operators.count("TRANSPOSE") == expected
