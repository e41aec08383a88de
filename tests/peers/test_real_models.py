"""Real models train: losses fall, one step's gradients are PyTorch's or a float64 finite difference's."""

from __future__ import annotations

import pathlib

import numpy as np
import pytest

import circle_train as ct
from circle_train.compile.compile import compile
from circle_train.compile.program import Mode, Program
from circle_train.ir import StateKey
from circle_train.passes import pipelines

MODELS = pathlib.Path(__file__).resolve().parents[3] / "shared" / "data" / "models"
TRAINED = {
    "mobilenet_v1_1.0_224_f32.tflite": (2, 0.05, "mse"),
    "posenet_mv1_f32.tflite": (1, 1e-3, "mse"),
    "mobilefacenet_f32.tflite": (2, 1e-5, "mse"),
    "hey_mycroft_ln_mlp_f32.tflite": (8, 1e-3, "binary_crossentropy"),
}
"""Batch size, learning rate, loss: the wake word's sigmoid is saturated on noise, so that only its logits have a gradient."""

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not MODELS.exists(), reason="../shared/data/models is not there"),
]


def data_for(program: Program) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """Random inputs and targets near what the model gives."""
    rng = np.random.default_rng(5)
    x = [rng.uniform(-1, 1, t.shape).astype(np.float32) for t in program.inputs]
    y = [rng.uniform(0, 0.5, t.shape).astype(np.float32) for t in program.targets]
    return x, y


@pytest.mark.parametrize("trainable", ["all", ("last", 5)], ids=["all", "last5"])
@pytest.mark.parametrize("name", TRAINED)
def test_the_loss_falls(name: str, trainable: object) -> None:
    batch, rate, loss = TRAINED[name]
    config = ct.TrainConfig(
        loss=loss,
        optimizer=ct.optimizers.SGD(learning_rate=rate, momentum=0.9),
        batch_size=batch,
        trainable=trainable,
    )
    session = ct.TrainSession(MODELS / name, config)
    x, y = data_for(session.program)
    losses = [session.train_step(x, y).loss for _ in range(8)]
    assert losses[-1] < losses[0]
    assert np.isfinite(losses).all()
    assert len(session.parameters.trainable()) > 0


@pytest.mark.parametrize("name", TRAINED)
def test_gradients_are_a_float64_finite_difference(name: str) -> None:
    """Along one random direction through all parameters: (L(w + h·v) - L(w - h·v)) / 2h = g·v, forward in float64."""
    batch, _, loss_name = TRAINED[name]
    config = ct.TrainConfig(loss=loss_name, optimizer=ct.optimizers.SGD(learning_rate=1.0), batch_size=batch)
    session = ct.TrainSession(MODELS / name, config)
    x, y = data_for(session.program)
    session.train_step(x, y, update=False, accumulate=True)
    names = list(session.parameters.trainable())
    gradients = {n: session.state.arrays[StateKey("gradient", n)].astype(np.float64) for n in names}
    rng = np.random.default_rng(0)
    weights = {n: session.parameters[n].astype(np.float64) for n in names}
    direction = {n: rng.normal(size=w.shape) * np.abs(w).mean() for n, w in weights.items()}
    predicted = sum(float((gradients[n] * direction[n]).sum()) for n in names)
    loss = Float64Loss(session, x, y)
    step = 1e-7
    ahead, behind = (
        loss({n: weights[n] + sign * step * direction[n] for n in names}) for sign in (1.0, -1.0)
    )
    assert predicted == pytest.approx((ahead - behind) / (2 * step), rel=2e-3)


class Float64Loss:
    """The program's forward and loss nodes, evaluated with the reference in float64."""

    def __init__(self, session: ct.TrainSession, x: list[np.ndarray], y: list[np.ndarray]) -> None:
        module = session.model.module
        self.program = compile(module.main, session.config, Mode.EVALUATE, session.config.batch_size)
        self.feeds = dict(zip([*self.program.inputs, *self.program.targets], [*x, *y], strict=True))

    def __call__(self, weights: dict[str, np.ndarray]) -> float:
        values = {tensor: array.astype(np.float64) for tensor, array in self.feeds.items()}
        graph = self.program.graph
        for tensor in graph.all_tensors():
            if tensor.state is not None:
                stored = weights.get(tensor.state.owner)
                values[tensor] = tensor.data.astype(np.float64) if stored is None else stored
            elif tensor.is_constant and tensor.producer is None:
                values[tensor] = tensor.data.astype(np.float64) if tensor.dtype.is_float else tensor.data
        for node in graph.nodes:
            inputs = [None if t is None else values[t] for t in node.inputs]
            values.update(zip(node.outputs, node.op.compute(inputs), strict=True))
        assert self.program.loss is not None
        return float(values[self.program.loss].sum())


def test_a_pipeline_leaves_the_loaded_model_alone() -> None:
    model = ct.load(MODELS / "hey_mycroft_ln_mlp_f32.tflite")
    before = [(node.op, [t and t.name for t in node.inputs]) for node in model.module.main.nodes]
    pipelines.run(pipelines.before_training(4), model.module.main.copy())
    assert [(node.op, [t and t.name for t in node.inputs]) for node in model.module.main.nodes] == before
