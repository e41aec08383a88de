"""Golden runs of the real ONERT: losses, weights and moments at every step, and what the exported model predicts.

Ten runs lie in tests/data/onert; the slow suite takes all that ../shared/golden/onert holds, and upstream's own test models.
"""

from __future__ import annotations

import json
import pathlib
from typing import Any

import numpy as np
import pytest
from onert_files import FOLDER, RUNS, config_of

import circle_train as ct
from circle_train.backends import native
from circle_train.ir import StateKey

SHARED = pathlib.Path(__file__).resolve().parents[3] / "shared" / "golden" / "onert"
ALL_RUNS: list[dict[str, Any]] = json.loads((SHARED / "runs.json").read_text()) if SHARED.exists() else []
needs_shared = pytest.mark.skipif(not SHARED.exists(), reason="../shared/golden/onert is not there")


@pytest.fixture(params=["reference", "native"])
def backend(request: pytest.FixtureRequest) -> str:
    if request.param == "native" and not native.is_available():
        pytest.skip("the native engine was not built")
    return str(request.param)


@pytest.mark.parametrize("run", RUNS, ids=lambda run: run["name"])
def test_the_runs_in_this_repository(run: dict[str, Any], backend: str, tmp_path: pathlib.Path) -> None:
    check_run(FOLDER, run, backend, tmp_path)


@needs_shared
@pytest.mark.slow
@pytest.mark.parametrize("run", ALL_RUNS, ids=lambda run: run["name"])
def test_every_golden_run(run: dict[str, Any], backend: str, tmp_path: pathlib.Path) -> None:
    check_run(SHARED, run, backend, tmp_path)


def check_run(folder: pathlib.Path, run: dict[str, Any], backend: str, out: pathlib.Path) -> None:
    data = np.load(folder / f"{run['name']}.npz")
    session = ct.TrainSession(str(folder / run["model"]), config_of(run), backend=backend)
    inputs = [data[name] for name in sorted(data.files) if name.startswith("x")]
    names = {f"t{i}": tensor.name for i, tensor in enumerate(session.model.module.main.tensors)}
    for step in range(run["steps"]):
        x = [array[step] for array in inputs]
        loss = session.train_step(x, data["y"][step]).loss
        np.testing.assert_allclose(loss, run["losses"][step], rtol=1e-5)
        compare_state(session, data, names, step)
    session.export(out / "trained.circle")
    predicted = ct.InferenceSession(out / "trained.circle", backend=backend)(
        *[array[run["steps"]] for array in inputs]
    )
    if "infer_pred_after_export" in data.files:
        np.testing.assert_allclose(predicted, data["infer_pred_after_export"], atol=1e-5)
    else:
        x = [array[run["steps"]] for array in inputs]
        np.testing.assert_allclose(predicted, session.predict(x), atol=1e-6)
    expected = run.get("ref_f64", {}).get("eval_loss_expected")
    if expected is not None:
        result = session.eval_step([array[run["steps"]] for array in inputs], data["y"][run["steps"]])
        np.testing.assert_allclose(result.loss, expected, rtol=1e-5)


def compare_state(session: ct.TrainSession, data: Any, names: dict[str, str], step: int) -> None:
    """Weights to 5e-6; Adam's moments to 1e-4 of their value, or where terms cancel to float32's share of the largest."""
    for key in (key for key in data.files if key in names and names[key] in session.parameters):
        value = session.parameters[names[key]]
        np.testing.assert_allclose(
            value, data[key][step].reshape(value.shape), atol=5e-6, rtol=0, err_msg=names[key]
        )
        for slot in ("m", "v"):
            recorded = f"{slot}{key[1:]}"
            state = StateKey(slot, names[key])
            if recorded in data.files and state in session.state.arrays:
                found = session.state.arrays[state]
                wanted = data[recorded][step].reshape(found.shape)
                np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=3e-5 * float(np.abs(wanted).max()))


@needs_shared
@pytest.mark.slow
def test_upstreams_own_training_tests(backend: str) -> None:
    """Models of ONERT's unit tests, with the epoch losses that the wheel and, as far as they go, upstream publish."""
    cases = json.loads((SHARED / "upstream_tests" / "cases.json").read_text())
    for case in cases:
        session = ct.TrainSession(SHARED / case["model"], config_of(case), backend=backend)
        shapes = [(case["batch_size"], *shape[1:]) for shape in case["input_shapes"]]
        expected_shape = (case["batch_size"], *case["expected_shape"][1:])
        for published in case["wheel_epoch_mean_loss"]:
            losses = []
            for given, wanted in zip(case["steps_inputs"], case["steps_expected"], strict=True):
                x = [np.array(a, np.float32).reshape(s) for a, s in zip(given, shapes, strict=True)]
                losses.append(
                    session.train_step(x, np.array(wanted, np.float32).reshape(expected_shape)).loss
                )
            assert np.mean(losses) == pytest.approx(published, abs=case["tolerance"]), case["name"]


@needs_shared
@pytest.mark.slow
def test_where_onert_exports_wrongly_we_export_what_was_trained(backend: str, tmp_path: pathlib.Path) -> None:
    """One weight in two operators, one buffer behind two biases: the file must do what the session does."""
    for case in json.loads((SHARED / "quirks" / "cases.json").read_text()):
        data = np.load(SHARED / case["data"])
        config = ct.TrainConfig(
            loss="mse", optimizer=ct.optimizers.SGD(learning_rate=case["lr"]), batch_size=case["batch_size"]
        )
        session = ct.TrainSession(SHARED / case["model"], config, backend=backend)
        first = session.train_step(data["x"][0], data["y"][0]).loss
        assert first == pytest.approx(case["losses"][0], rel=1e-5), "before any update ONERT is right"
        for x, y in zip(data["x"][1:3], data["y"][1:3], strict=True):
            session.train_step(x, y)
        session.export(tmp_path / "trained.circle")
        again = ct.TrainSession(tmp_path / "trained.circle", config, backend=backend)
        trained = session.eval_step(data["x"][0], data["y"][0]).loss
        assert again.eval_step(data["x"][0], data["y"][0]).loss == pytest.approx(trained, rel=1e-6)
        assert trained < first
