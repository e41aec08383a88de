"""Runs recorded from ONNX Runtime's own training, repeated step for step: losses, gradients, weights, exported models."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import circle_train as ct

GOLDEN = Path(__file__).resolve().parents[3] / "shared" / "golden" / "ort"
RUNS = sorted(
    path.stem for path in GOLDEN.glob("*.json") if path.stem not in ("INDEX", "fedavg_mlp_3clients")
)
CLASS_WEIGHTS = (0.5, 1.0, 2.0, 4.0)
POS_WEIGHT = (1.0, 2.0, 3.0, 0.5)
ADAMW: dict[str, dict[str, Any]] = {
    "opt_adamw_betas": {"beta_1": 0.8, "beta_2": 0.95},
    "opt_adamw_clip": {"clip_norm": 0.05},
    "opt_adamw_eps1e-2": {"epsilon": 1e-2},
    "opt_adamw_nobiascorr": {"bias_correction": False},
    "opt_adamw_wd": {"weight_decay": 0.1},
}
CLIP = {"opt_sgd_clip": 0.05, "opt_sgd_clip_inactive": 100.0}
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not RUNS, reason=f"{GOLDEN} with the recorded runs is not there"),
]


def loss_of(run: str, described: str) -> ct.losses.Loss:
    reduction = "sum_elements" if "_enum_sum" in run or "_sum_" in run else "mean"
    if run.startswith("custom"):
        return ct.losses.custom(lambda out, y: 0.4 * (out - y).square().mean() + 0.6 * abs(out - y).mean())
    if "MSE" in described:
        return ct.losses.MeanSquaredError(reduction=reduction)
    if "L1" in described:
        return ct.losses.MeanAbsoluteError(reduction=reduction)
    if "BCE" in described:
        weight = POS_WEIGHT if "posw" in run else None
        return ct.losses.BinaryCrossentropy(from_logits=True, reduction=reduction, pos_weight=weight)
    weights = CLASS_WEIGHTS if "weight" in run else None
    return ct.losses.SparseCategoricalCrossentropy(
        from_logits=True, reduction=reduction, class_weights=weights
    )


def optimizer_of(run: str, described: str, lr: float | ct.schedules.Schedule) -> ct.optimizers.Optimizer:
    if described.endswith("SGD"):
        return ct.optimizers.SGD(lr, clip_norm=CLIP.get(run))
    settings = {"epsilon": 1e-6, "weight_decay": 0.0} | ADAMW.get(run, {})
    return ct.optimizers.AdamW(lr, style="ort", **settings)


def session_of(run: str, facts: dict[str, Any], data: Any) -> ct.TrainSession:
    rate = float(data["lr"][0]) or 0.1
    if run == "sched_linear_sgd_w8_t3":
        schedule = ct.schedules.LinearWarmup(0.1, warmup_steps=3, total_steps=8)
        assert [schedule(step) for step in range(8)] == pytest.approx(data["lr"].tolist(), abs=1e-7)
    config = ct.TrainConfig(
        loss=loss_of(run, str(facts["loss"])),
        optimizer=optimizer_of(run, str(facts["optimizer"]), schedule if "w8_t3" in run else rate),
        batch_size=len(data["in0/0"]),
        trainable=facts["requires_grad"],
        batch_norm="train" if run.startswith("cnn_bn") else "frozen",
    )
    return ct.TrainSession(str(GOLDEN / f"{run}.onnx"), config)


def compare(session: ct.TrainSession, data: Any, prefix: str, tolerance: float) -> None:
    """Every weight that the run recorded, statistics too."""
    for key in data.files:
        if key.startswith(f"{prefix}/"):
            name = key.removeprefix(f"{prefix}/")
            if name in session.parameters:
                np.testing.assert_allclose(
                    session.parameters[name], data[key], rtol=0, atol=tolerance, err_msg=key
                )


def replay(session: ct.TrainSession, data: Any, facts: dict[str, Any], tolerance: float) -> None:
    """Every step, with the gradients after the first call and the weights after the first update."""
    resets, accumulated = facts["lazy_reset_after_step"], facts["accum"]
    for step, expected in enumerate(data["loss"].reshape(-1)):
        if (
            facts["run"] == "sched_linear_sgd_w0_t8"
        ):  # warm-up and total swapped: the rates are not the documented ones
            session.learning_rate = float(data["lr"][step])
        x, y = data[f"in0/{step}"], data[f"in1/{step}"]
        result = session.train_step(x, y, update=False, accumulate=True)
        assert np.sum(result.loss) == pytest.approx(expected, abs=tolerance * max(1, abs(float(expected)))), (
            f"step {step}"
        )
        if step == 0:
            np.testing.assert_allclose(result.outputs[0], data["out0"], rtol=0, atol=tolerance)
            for name, gradient in session.gradients.items():
                np.testing.assert_allclose(
                    gradient, data[f"grad0/{name}"], rtol=0, atol=tolerance, err_msg=name
                )
        if (step + 1) % accumulated == 0:
            session.update()
            if step + 1 == accumulated:
                compare(session, data, "w1", tolerance)
            if resets:
                session.reset_gradients(lazy=True)


@pytest.mark.parametrize("run", RUNS)
def test_run_is_repeated(run: str, tmp_path: Path) -> None:
    facts = json.loads((GOLDEN / f"{run}.json").read_text())
    with np.load(GOLDEN / f"{run}.npz") as data:
        tolerance = 1e-4 if run == "opt_adamw_nobiascorr" else 2e-5
        session = session_of(run, facts, data)
        compare(session, data, "w0", 0)
        replay(session, data, facts, tolerance)
        compare(session, data, "wT", tolerance)
        if run == "cnn_bn_tm0_conststats_sgd":
            return  # ONNX Runtime exports stale statistics here; what stands in the file is compared below
        x, y = data["in0/0"], data["in1/0"]
        result = session.eval_step(x, y)
        assert np.sum(result.loss) == pytest.approx(
            float(np.sum(data["eval_loss"])), abs=tolerance * max(1, float(np.sum(result.loss)))
        )
        np.testing.assert_allclose(result.outputs[0], data["eval_out"], rtol=0, atol=tolerance)
        check_exports(session, data, x, tolerance, tmp_path)


def check_exports(session: ct.TrainSession, data: Any, x: Any, tolerance: float, folder: Path) -> None:
    """The exported models give what ONNX Runtime's gave; the ONNX one also where onnxruntime runs it."""
    onnxruntime = pytest.importorskip("onnxruntime")
    expected = data["infer_out"] if "infer_out" in data.files else data["eval_out"]
    session.export(folder / "out.circle")
    session.export(folder / "out.onnx")
    np.testing.assert_allclose(
        ct.InferenceSession(folder / "out.circle")(x), expected, rtol=0, atol=tolerance
    )
    peer = onnxruntime.InferenceSession(str(folder / "out.onnx"), providers=["CPUExecutionProvider"])
    (found,) = peer.run(None, {peer.get_inputs()[0].name: x})
    np.testing.assert_allclose(found, expected, rtol=0, atol=tolerance)


def test_statistics_that_move_are_exported(tmp_path: Path) -> None:
    """Where ONNX Runtime kept the old running statistics, the file holds those that training arrived at."""
    run = "cnn_bn_tm0_conststats_sgd"
    facts = json.loads((GOLDEN / f"{run}.json").read_text())
    with np.load(GOLDEN / f"{run}.npz") as data, np.load(GOLDEN / "cnn_bn_opset11.npz") as moved:
        session = session_of(run, facts, data)
        replay(session, data, facts, 2e-5)
        compare(session, moved, "wT", 2e-5)
        check_exports(session, moved, data["in0/0"], 2e-5, tmp_path)
        assert session.eval_step(data["in0/0"], data["in1/0"]).loss == pytest.approx(
            float(np.sum(moved["eval_loss"])), abs=2e-5
        )


def test_federated_averaging() -> None:
    """Three clients of 12, 24 and 36 samples, five rounds: flat vectors in the order of the initializers."""
    path = GOLDEN / "fedavg_mlp_3clients.onnx"
    loss = ct.losses.SparseCategoricalCrossentropy(from_logits=True)
    with np.load(path.with_suffix(".npz")) as data:
        config = ct.TrainConfig(loss=loss, optimizer=ct.optimizers.SGD(0.05), batch_size=6)
        for number in range(1, 6):
            vectors = []
            for client in range(3):
                session = ct.TrainSession(str(path), config)
                session.parameters.set_flat(data[f"global{number - 1}"], trainable_only=False)
                x, y = data[f"x{client}"], data[f"y{client}"]
                for start in range(0, len(x), 6):
                    session.train_step(x[start : start + 6], y[start : start + 6])
                vectors.append(session.parameters.flat())
                np.testing.assert_allclose(
                    vectors[-1], data[f"client{client}/round{number}"], rtol=0, atol=2e-5
                )
            mean = np.average(vectors, axis=0, weights=[12, 24, 36])
            np.testing.assert_allclose(mean, data[f"global{number}"], rtol=0, atol=2e-5)
