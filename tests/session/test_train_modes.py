"""Batch normalisation by the batch and dropout, step for step with ONNX Runtime; what each mode keeps and changes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import circle_train as ct

pytest.importorskip("onnx")
DATA = Path(__file__).parents[1] / "data" / "ort"
MODEL = DATA / "images.onnx"
STATISTICS = ("bn.mean", "bn.var")


def session(model: Any = MODEL, *, seed: int = 0, **changes: Any) -> ct.TrainSession:
    loss = ct.losses.SparseCategoricalCrossentropy(from_logits=True)
    settings = {"loss": loss, "optimizer": ct.optimizers.SGD(0.1), "batch_size": 4} | changes
    return ct.TrainSession(model, ct.TrainConfig(**settings), seed=seed)


def batch(step: int = 0) -> tuple[Any, Any]:
    with np.load(DATA / "images.npz") as run:
        return run[f"in0/{step}"], run[f"in1/{step}"]


@pytest.mark.parametrize("through", ["onnx", "circle"])
def test_the_same_run_as_there(through: str, tmp_path: Path) -> None:
    """Losses under batch statistics and random masks, all weights, and the running statistics at the end."""
    model: Any = MODEL
    if through == "circle":
        ct.load(MODEL).save(tmp_path / "images.circle")
        model = tmp_path / "images.circle"
    made = session(model, batch_norm="train")
    with np.load(DATA / "images.npz") as run:
        for step in range(6):
            loss = made.train_step(run[f"in0/{step}"], run[f"in1/{step}"]).loss
            assert loss == pytest.approx(float(run["loss"][step]), abs=2e-6), f"step {step}"
        for name in STATISTICS:
            np.testing.assert_allclose(made.parameters[name], run[f"wT/{name}"], rtol=0, atol=2e-6)
        if through == "onnx":
            for name in made.parameters:
                np.testing.assert_allclose(
                    made.parameters[name], run[f"wT/{name}"], rtol=0, atol=2e-6, err_msg=name
                )


def test_frozen_statistics_stay_and_evaluation_is_the_same_in_both_modes() -> None:
    frozen, by_batch = session(dropout=False), session(dropout=False, batch_norm="train")
    x, y = batch()
    assert frozen.eval_step(x, y).loss == by_batch.eval_step(x, y).loss
    assert frozen.train_step(x, y).loss == pytest.approx(session().eval_step(x, y).loss, abs=1e-6)
    untouched = session().parameters
    for name in STATISTICS:
        np.testing.assert_array_equal(frozen.parameters[name], untouched[name])
    by_batch.train_step(x, y)
    assert all(not np.array_equal(by_batch.parameters[name], untouched[name]) for name in STATISTICS)


def test_statistics_do_not_move_in_a_refused_step() -> None:
    made = session(batch_norm="train")
    before = made.parameters.flat(trainable_only=False).copy()
    x, y = batch()
    with pytest.raises(ct.DataError, match="NaN"):
        made.train_step(np.full_like(x, np.nan), y)
    np.testing.assert_array_equal(made.parameters.flat(trainable_only=False), before)


def test_statistics_come_back_from_a_checkpoint(tmp_path: Path) -> None:
    made, resumed = session(batch_norm="train"), session(batch_norm="train")
    for step in range(3):
        made.train_step(*batch(step))
    made.save_checkpoint(tmp_path / "x.safetensors")
    resumed.load_checkpoint(tmp_path / "x.safetensors")
    for step in range(3, 6):
        assert resumed.train_step(*batch(step)).loss == made.train_step(*batch(step)).loss
    np.testing.assert_array_equal(resumed.parameters.flat(False), made.parameters.flat(False))


def test_statistics_are_written_back_into_onnx(tmp_path: Path) -> None:
    import onnx
    from onnx import numpy_helper

    made = session(batch_norm="train")
    made.train_step(*batch())
    made.export(tmp_path / "out.onnx")
    written = {i.name: numpy_helper.to_array(i) for i in onnx.load(tmp_path / "out.onnx").graph.initializer}
    for name, value in made.parameters.items():
        np.testing.assert_array_equal(written[name], value)


def test_exported_in_training_mode(tmp_path: Path) -> None:
    """training_mode=1 with the statistics as outputs, which ONNX Runtime refused from opset 14 on: the same run."""
    import onnx

    model = onnx.load(MODEL)
    model.opset_import[0].version = 14
    (node,) = (n for n in model.graph.node if n.op_type == "BatchNormalization")
    node.attribute.append(onnx.helper.make_attribute("training_mode", 1))
    node.output.extend(["moved_mean", "moved_var"])
    onnx.save(model, tmp_path / "training.onnx")
    made = session(tmp_path / "training.onnx", batch_norm="train")
    with np.load(DATA / "images.npz") as run:
        for step in range(6):
            loss = made.train_step(run[f"in0/{step}"], run[f"in1/{step}"]).loss
            assert loss == pytest.approx(float(run["loss"][step]), abs=2e-6)
        np.testing.assert_allclose(made.parameters["bn.var"], run["wT/bn.var"], rtol=0, atol=2e-6)


def unseeded(folder: Path) -> Path:
    """The same model without a seed of its own for the masks."""
    import onnx

    model = onnx.load(MODEL)
    (node,) = (n for n in model.graph.node if n.op_type == "Dropout")
    node.ClearField("attribute")
    onnx.save(model, folder / "unseeded.onnx")
    return folder / "unseeded.onnx"


def test_masks_follow_from_the_seed(tmp_path: Path) -> None:
    path = unseeded(tmp_path)
    runs = [
        [float(made.train_step(*batch(i)).loss) for i in range(3)]
        for made in (session(path, seed=s) for s in (1, 1, 2))
    ]
    assert runs[0] == runs[1]
    assert all(a != b for a, b in zip(runs[0], runs[2], strict=True))


def test_masks_differ_from_pass_to_pass_and_keep_the_mean() -> None:
    from circle_train.ops.internal.dropout import DropoutMask

    op = DropoutMask((200, 500), 0.3)
    first, second = (op.forward(np.array([4, passes, 0])) for passes in (0, 1))
    for mask in (first, second):
        assert set(np.unique(mask)) == {np.float32(0), np.float32(1 / 0.7)}
        assert mask.mean() == pytest.approx(1, abs=0.01)
    assert np.mean((first > 0) & (second > 0)) == pytest.approx(0.49, abs=0.01)


def test_the_generator_is_c_plus_plus_minstd_rand0() -> None:
    """Its ten thousandth number is 1043618065, says the standard."""
    from circle_train.ops.numeric.lehmer import MODULUS, uniform

    expected = np.float32((1043618065 - 1) / (MODULUS - 1))
    assert uniform(1, 10_000)[-1] == pytest.approx(expected, rel=1e-6)


def test_wrong_mode_is_refused() -> None:
    with pytest.raises(ct.ConfigError, match="batch_norm is 'always', expected 'frozen' or 'train'"):
        session(batch_norm="always")


def test_a_frozen_beginning_with_its_normalisation_runs_sample_by_sample(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Transposed, padded and normalised as the converter writes it; batch statistics forbid it."""
    from circle_train.compile import prefix

    whole = session(trainable=["fc.*"], dropout=False)
    x, y = batch()
    losses = [whole.train_step(x, y).loss for _ in range(3)]
    assert whole.program.prefix is None
    monkeypatch.setattr(prefix, "CACHE_BYTES", 2000)
    parts = session(trainable=["fc.*"], dropout=False)
    assert [parts.train_step(x, y).loss for _ in range(3)] == pytest.approx(losses, abs=1e-7)
    assert parts.program.prefix is not None
    by_batch = session(trainable=["fc.*"], dropout=False, batch_norm="train")
    by_batch.train_step(x, y)
    cut = by_batch.program.prefix
    assert cut is None or all(node.op.name != "MEAN" for node in cut.program.graph.nodes)


def test_a_batch_is_normalised_with_the_models_epsilon(tmp_path: Path) -> None:
    """One so large beside the variance that leaving it out is no rounding; torch is the referee."""
    import onnx

    torch = pytest.importorskip("torch")
    from onnx import TensorProto, helper, numpy_helper

    rng = np.random.default_rng(0)
    constants = {
        "scale": rng.normal(size=3), "shift": rng.normal(size=3), "mean": np.zeros(3), "var": np.ones(3),
        "w": rng.normal(size=(3, 2)),
    }  # fmt: skip
    nodes = [
        helper.make_node("BatchNormalization", ["x", "scale", "shift", "mean", "var"], ["n"], epsilon=0.5),
        helper.make_node("MatMul", ["n", "w"], ["y"]),
    ]
    values = [numpy_helper.from_array(array.astype(np.float32), name) for name, array in constants.items()]
    graph = helper.make_graph(
        nodes, "g", [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 3])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", 2])], values,
    )  # fmt: skip
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]), tmp_path / "net.onnx")
    made = session(tmp_path / "net.onnx", loss="mse", batch_norm="train")
    x = 0.3 * rng.normal(size=(4, 3)).astype(np.float32)
    scale, shift, w = (torch.from_numpy(constants[name]).float() for name in ("scale", "shift", "w"))
    normal = torch.nn.functional.batch_norm(torch.from_numpy(x), None, None, scale, shift, True, 0.1, 0.5)
    result = made.train_step(x, np.zeros((4, 2), np.float32))
    np.testing.assert_allclose(result.outputs[0], normal @ w, rtol=1e-5, atol=1e-5)


def test_statistics_of_the_batch_where_channels_do_not_lie_last(tmp_path: Path) -> None:
    """Between operators that leave ONNX's order of axes alone nothing is transposed; PyTorch normalises the same."""
    torch = pytest.importorskip("torch")
    import onnx
    from onnx import helper, numpy_helper

    rng = np.random.default_rng(0)
    first = {"w": rng.normal(size=(3, 7)), "gamma": rng.normal(size=3), "beta": rng.normal(size=3)}
    values = {**first, "mean": rng.normal(size=3), "var": rng.uniform(0.5, 2, 3)}
    values = {name: value.astype(np.float32) for name, value in values.items()}
    nodes = [
        helper.make_node("Mul", ["x", "w"], ["a"]),
        helper.make_node("BatchNormalization", ["a", "gamma", "beta", "mean", "var"], ["b"], momentum=0.75),
        helper.make_node("Relu", ["b"], ["y"]),
    ]
    sides = [[helper.make_tensor_value_info(name, 1, ["n", 3, 7])] for name in "xy"]
    initializers = [numpy_helper.from_array(value, name) for name, value in values.items()]
    graph = helper.make_graph(nodes, "g", *sides, initializers)
    onnx.save(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8),
        tmp_path / "n.onnx",
    )
    model = ct.load(tmp_path / "n.onnx")
    assert "TRANSPOSE" not in [operator.name for operator in model.operators]
    x, target = (rng.normal(size=(5, 3, 7)).astype(np.float32) for _ in range(2))
    made = ct.TrainSession(
        model, ct.TrainConfig(loss="mse", optimizer=ct.optimizers.SGD(0.1), batch_size=5, batch_norm="train")
    )
    there = {name: torch.from_numpy(value.copy()) for name, value in values.items()}
    for name in first:
        there[name].requires_grad_()
    for _ in range(3):
        normal = torch.nn.functional.batch_norm(
            torch.from_numpy(x) * there["w"], None, None, there["gamma"], there["beta"], True, 0.0, 1e-5
        )
        loss = torch.nn.functional.mse_loss(torch.relu(normal), torch.from_numpy(target))
        assert float(made.train_step(x, target).loss) == pytest.approx(float(loss.detach()), rel=1e-5)
        loss.backward()
        with torch.no_grad():
            for name in first:
                there[name] -= 0.1 * there[name].grad
                there[name].grad = None
    for name in first:
        np.testing.assert_allclose(made.parameters[name], there[name].detach(), rtol=1e-4, atol=1e-5)
    assert np.abs(made.parameters["mean"] - values["mean"]).max() > 0.01
