"""Weights of which some input channels are trained: gradients, updates, memory, names, files."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import networks
import numpy as np
import pytest

import circle_train as ct
from circle_train.federated.client.session import ClientSession
from circle_train.ir import Graph
from circle_train.ir.graph import constant
from circle_train.ir.tensor_type import Array
from circle_train.model import Model
from circle_train.ops.attributes import Activation, Padding
from circle_train.settings import as_json

SHARES = {"one/w": 0.5, "two/w": 0.25, "fc/w": 0.5}
CHANNELS = {"one/w": 4, "two/w": 6, "fc/w": 8}
WHOLE = (*SHARES, "two/b")
PARTS = (*(f"{name}[:{share}]" for name, share in SHARES.items()), "two/b")
RANDOM = np.random.default_rng(0)
X = RANDOM.random((6, 12, 12, 8), np.float32)
Y = RANDOM.random((6, 5), np.float32)
backends = pytest.mark.parametrize("backend", ["reference", "native"])


def net() -> Model:
    """Two convolutions, a mean and a dense layer."""
    graph = Graph("net", [networks.new_input("x", 1, 12, 12, 8)])
    conv = networks.make("CONV_2D", padding=Padding.SAME, fused_activation_function=Activation.RELU6)
    one = networks.weight("one/w", 24, 3, 3, 8), networks.weight("one/b", 24)
    two = networks.weight("two/w", 16, 1, 1, 24), networks.weight("two/b", 16)
    x = graph.emit(conv, graph.inputs[0], *one, name="one")
    x = graph.emit(conv, x, *two, name="two")
    axes = constant(np.array([1, 2], np.int32), "axes")
    x = graph.emit(networks.make("MEAN", keep_dims=False), x, axes, name="mean")
    fc = networks.weight("fc/w", 5, 16), networks.weight("fc/b", 5)
    return networks.finish(graph, graph.emit(networks.make("FULLY_CONNECTED"), x, *fc, name="fc"))


def session(trainable: Any, rule: Any = "adam", backend: str = "auto", **settings: Any) -> ct.TrainSession:
    config = ct.TrainConfig(loss="mse", optimizer=rule, batch_size=6, trainable=trainable, **settings)
    return ct.TrainSession(net(), config, backend=backend)


def values(of: ct.TrainSession) -> dict[str, Array]:
    return {name: np.array(value) for name, value in of.parameters.items()}


def assert_only_channels_moved(before: Mapping[str, Array], after: Mapping[str, Array]) -> None:
    for name, value in after.items():
        moved = value != before[name]
        channels = CHANNELS.get(name, 0) if name != "two/b" else len(value)
        assert moved[..., :channels].any() == bool(channels) and not moved[..., channels:].any(), name


@backends
@pytest.mark.parametrize("activations", ["float32", "bfloat16"])
def test_gradients_are_those_of_all_channels_cut(backend: str, activations: str) -> None:
    whole, part = (
        session(names, backend=backend, activations=activations) for names in (list(WHOLE), list(PARTS))
    )
    for one in (whole, part):
        one.train_step(X, Y, update=False, accumulate=True)
    for name, gradient in whole.gradients.items():
        channels = CHANNELS.get(name, gradient.shape[-1])
        found = part.gradients[name]
        np.testing.assert_allclose(found[..., :channels], gradient[..., :channels], rtol=1e-4, atol=1e-6)
        assert found.shape == gradient.shape and not found[..., channels:].any()
    part.update()
    held = {
        key.owner: array.shape
        for key, array in part.state.arrays.items()
        if key.kind in ("gradient", "m", "v")
    }
    assert held == {"one/w": (24, 3, 3, 4), "two/w": (16, 1, 1, 6), "fc/w": (5, 8), "two/b": (16,)}


@backends
@pytest.mark.parametrize("clip", [None, 0.05])
def test_a_share_trains_as_in_torch(backend: str, clip: float | None) -> None:
    """Its channels alone are torch's parameters; weight decay leaves the others alone, too."""
    torch = pytest.importorskip("torch")
    rule = ct.optimizers.AdamW(
        learning_rate=0.01, weight_decay=0.1, epsilon=1e-8, style="torch", clip_norm=clip
    )
    ours = session(list(PARTS), rule, backend)
    start = values(ours)
    given = {name: torch.from_numpy(value) for name, value in start.items()}
    learned = {name: given[name][..., :channels].clone() for name, channels in CHANNELS.items()}
    learned["two/b"] = given["two/b"].clone()
    optimizer = torch.optim.AdamW([p.requires_grad_() for p in learned.values()], lr=0.01, weight_decay=0.1)

    def now(name: str) -> Any:
        if name not in CHANNELS:
            return learned.get(name, given[name])
        return torch.cat([learned[name], given[name][..., CHANNELS[name] :]], -1)

    for _ in range(4):
        x = torch.from_numpy(X).permute(0, 3, 1, 2)
        for layer, padding in (("one", 1), ("two", 0)):
            w = now(f"{layer}/w").permute(0, 3, 1, 2)
            x = torch.nn.functional.conv2d(x, w, now(f"{layer}/b"), padding=padding).clamp(0, 6)
        x = x.mean((2, 3)) @ now("fc/w").T + now("fc/b")
        loss = torch.nn.functional.mse_loss(x, torch.from_numpy(Y))
        optimizer.zero_grad()
        loss.backward()
        if clip is not None:
            torch.nn.utils.clip_grad_norm_(list(learned.values()), clip)
        optimizer.step()
        assert ours.train_step(X, Y).loss == pytest.approx(loss.item(), rel=1e-5)
    for name, value in ours.parameters.items():
        np.testing.assert_allclose(value, now(name).detach().numpy(), rtol=1e-4, atol=1e-5)
    assert_only_channels_moved(start, values(ours))


def test_less_waits_and_slots_are_smaller() -> None:
    whole, part = (session(list(names)).plan for names in (WHOLE, PARTS))
    assert sum(part.parameters.values()) == 24 * 9 * 4 + 16 * 6 + 5 * 8 + 16
    total = sum(part.parameters.values()) + part.frozen_elements
    assert total == sum(whole.parameters.values()) + whole.frozen_elements
    spared = 8 * (sum(whole.parameters.values()) - sum(part.parameters.values()))
    assert whole.memory["optimizer"] - part.memory["optimizer"] == spared
    pictures = 4 * 6 * 12 * 12
    waited = pictures * (4 + 18)  # of the input and of what the first layer makes
    bits = pictures * 24 // 32  # that are kept of the latter's activation instead
    assert whole.waiting_bytes - part.waiting_bytes == pytest.approx(waited - bits, abs=2048)
    assert part.memory["arena"] < whole.memory["arena"] and part.flops < whole.flops


@backends
def test_a_weight_of_two_layers(backend: str) -> None:
    x, y = RANDOM.random((4, 6), np.float32), RANDOM.random((4, 6), np.float32)
    found = []
    for name in ("w", "w[:0.5]"):
        config = ct.TrainConfig(loss="mse", batch_size=4, trainable=[name])
        one = ct.TrainSession(networks.tied(), config, backend=backend)
        one.train_step(x, y, update=False, accumulate=True)
        found.append(one.gradients["w"])
    np.testing.assert_allclose(found[1][:, :3], found[0][:, :3], rtol=1e-5, atol=1e-7)
    assert not found[1][:, 3:].any() and found[1].any()


def test_where_weights_are_rounded_on_their_way_to_the_layer() -> None:
    """The gradient of all channels is cut there."""
    one = session(list(PARTS), ct.optimizers.SGD(learning_rate=0.1), quantize=ct.Int8(calibration=X))
    start = values(one)
    one.fit(X, Y, epochs=2, verbose=0)
    assert one.state.rounding is not None
    assert_only_channels_moved(start, values(one))


def test_a_batch_in_parts_learns_the_same() -> None:
    least = session(list(PARTS)).plan.budget_bytes
    whole, parts = session(list(PARTS)), session(list(PARTS), memory_budget=least - 100_000)
    assert parts.plan.parts > 1
    for _ in range(3):
        assert parts.train_step(X, Y).loss == pytest.approx(whole.train_step(X, Y).loss, rel=1e-5)
    for name, value in parts.parameters.items():
        np.testing.assert_allclose(value, whole.parameters[name], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("suffix", ["safetensors", "ckpt"])
def test_checkpoints(suffix: str, tmp_path: Path) -> None:
    """A session goes on from them to the bit; one that trains all channels finds the others' moments 0 in ONERT's."""
    path = tmp_path / f"a.{suffix}"
    first, second = session(list(PARTS)), session(list(PARTS))
    for _ in range(2):
        first.train_step(X, Y)
    first.save_checkpoint(path)
    second.load_checkpoint(path)
    for one in (first, second):
        one.train_step(X, Y)
    assert all((value == second.parameters[name]).all() for name, value in first.parameters.items())
    whole = session(list(WHOLE))
    if suffix == "safetensors":
        with pytest.raises(
            ct.CheckpointError, match=r"of 'fc/w' is float32 \(5, 8\), here float32 \(5, 16\)"
        ):
            whole.load_checkpoint(path)
        return
    whole.load_checkpoint(path)
    first.load_checkpoint(path)
    for key, array in whole.state.arrays.items():
        if key.kind in ("m", "v"):
            channels = CHANNELS.get(key.owner, array.shape[-1])
            assert not array[..., channels:].any()
            assert (array[..., :channels] == first.state.arrays[key]).all() and array.any()


def test_proximal_training_pulls_at_the_share() -> None:
    config = ct.TrainConfig(
        loss="mse", optimizer=ct.optimizers.SGD(learning_rate=0.1), batch_size=6, trainable=PARTS
    )
    free, pulled = (ClientSession(net(), config) for _ in range(2))
    start = values(free)
    for one, mu in ((free, 0.0), (pulled, 5.0)):
        one.begin(0, None, mu)
        for _ in range(2):
            one.train_step(X, Y)
    first, second = (np.abs(one.parameters["one/w"] - start["one/w"]).sum() for one in (free, pulled))
    assert 0 < second < first
    assert_only_channels_moved(start, values(pulled))


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (
            ["two/b[:0.5]"],
            "'two/b.:0.5.' asks for a share of the input channels, by which no layer reads 'two/b'",
        ),
        (
            ["one/w[:4]"],
            "asks for the share 4 of the input channels, expected one between 0 and 1, as in 'one/w",
        ),
        (["one/w[:0]"], "asks for the share 0 of"),
        (["one/w[:half]"], "'one/w.:half.' is no parameter"),
        (["three/w[:0.5]"], "'three/w' is no parameter"),
        (["one/w", "one/w[:0.5]"], "two different shares of 'one/w' are listed"),
        (["*/w[:0.5]", "one/w[:0.25]"], "two different shares of 'one/w' are listed"),
    ],
)
def test_shares_that_mean_nothing(names: list[str], message: str) -> None:
    with pytest.raises(ct.ConfigError, match=message):
        session(names).prepare()


def test_weights_without_channels() -> None:
    """Of a depthwise convolution; and of groups, each of which reads channels of its own."""
    config = ct.TrainConfig(loss="mse", trainable=["dw/w[:0.5]"])
    with pytest.raises(ct.ConfigError, match="no layer reads 'dw/w'"):
        ct.TrainSession(networks.cnn(), config).prepare()
    graph = Graph("groups", [networks.new_input("x", 1, 4, 4, 4)])
    w = networks.weight("w", 4, 1, 1, 2)
    y = graph.emit(networks.make("CONV_2D"), graph.inputs[0], w, networks.weight("b", 4), name="y")
    with pytest.raises(ct.ConfigError, match="CONV_2D without groups"):
        ct.TrainSession(networks.finish(graph, y), config.replace(trainable=["w[:0.5]"])).prepare()


def test_patterns_and_frozen_names() -> None:
    assert session(["*/w[:0.5]"]).plan.parameters == {"one/w": 24 * 9 * 4, "two/w": 16 * 12, "fc/w": 5 * 8}
    plan = session(["*/w[:0.5]", "fc/b"], frozen=["two/*"]).plan
    assert plan.parameters == {"one/w": 24 * 9 * 4, "fc/w": 5 * 8, "fc/b": 5}
    with pytest.raises(ct.ConfigError, match="'one/w' is listed as trainable and as frozen"):
        session(["one/w[:0.5]"], frozen=["one/w"]).prepare()


def test_settings_keep_the_share(tmp_path: Path) -> None:
    """In JSON, and in a Circle+ file, in whose own record the operator is trained, as ONERT does it whole."""
    config = ct.TrainConfig(loss="mse", trainable=list(PARTS))
    assert as_json.from_dict(as_json.to_dict(config), "here") == config
    net().with_training(config).save(tmp_path / "net.circle")
    loaded = ct.load(tmp_path / "net.circle")
    assert loaded.training is not None and loaded.training.trainable == PARTS
    assert [op.index for op in loaded.operators if op.trainable] == [0, 1, 3]
