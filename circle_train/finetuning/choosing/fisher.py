"""How much a layer has to say about the loss: TinyTrain's Fisher information, from one pass of gradients over some samples.

Of an output channel o it is ½ · mean over n of (Σ_d a·g)²: a its activations at the places d, g the loss's gradient
there, n the samples. Of an operator that is linear in its weights Σ_d a·g is Σ w·dw + b·db over the weights and the bias
of the channel (Euler), so that gradients of single samples are all it takes; no activation is kept for it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from circle_train.compile.compile import compile
from circle_train.compile.program import Mode
from circle_train.compile.thrift.budget import parse_bytes
from circle_train.errors import ConfigError
from circle_train.finetuning.choosing.layers import Layer
from circle_train.finetuning.choosing.task import Task
from circle_train.ir.tensor_type import Array
from circle_train.optimizers import SGD
from circle_train.session import TrainSession

SAMPLES = 32


def information(task: Task, layers: Sequence[Layer], start: Mapping[str, Array]) -> dict[int, float]:
    """By the place of the layer; those for which there is no memory even alone have nothing to say."""
    if not layers:
        return {}
    session = _session(task, layers, start)
    if session is None:
        if len(layers) == 1:
            return {layers[0].place: 0.0}
        half = len(layers) // 2
        return {**information(task, layers[:half], start), **information(task, layers[half:], start)}
    places = np.random.default_rng([task.seed, 1]).permutation(len(task.data))[:SAMPLES]
    sums = {layer.place: 0.0 for layer in layers}
    for place in np.sort(places):
        inputs, targets = task.data.take(np.array([place]))
        session.reset_gradients()
        session.train_step(inputs, targets, update=False, accumulate=True, measure=False)
        gradients, values = session.gradients, session.parameters
        for layer in layers:
            sums[layer.place] += _of_layer(layer, values, gradients)
    return {place: total / (2 * len(places)) for place, total in sums.items()}


def _session(task: Task, layers: Sequence[Layer], start: Mapping[str, Array]) -> TrainSession | None:
    """Takes samples one by one; None where the gradients of so many layers do not fit the budget."""
    names = [name for layer in layers for name in layer.names]
    config = task.config.replace(trainable=names, batch_size=1, optimizer=SGD())
    session = TrainSession(task.model, config, seed=task.seed, threads=task.threads)
    if (memory := config.memory_budget) is not None:
        sums = compile(task.model.module.main, config, Mode.ACCUMULATE, 1, session.backend)
        try:
            session.programs.reserve("gradients that wait")
            besides = session.programs.whole.engine_bytes
        except ConfigError:
            return None
        if sums.step_bytes + besides > parse_bytes(memory):
            return None
    for name, value in start.items():
        session.parameters[name] = value
    return session


def _of_layer(layer: Layer, values: Mapping[str, Array], gradients: Mapping[str, Array]) -> float:
    """Σ_o (Σ_d a·g)² of one sample; the channels of a kernel are along its largest common axis with the bias."""
    products = [values[name] * gradients[name] for name in layer.names if name in gradients]
    if not products:
        return 0.0
    channels = min((p.size for p in products if p.ndim == 1), default=0)
    sums = np.zeros(max(channels, 1), np.float64)
    for product in products:
        axis = next((i for i, size in enumerate(product.shape) if size == channels), None)
        rest = tuple(i for i in range(product.ndim) if i != axis)
        sums += (
            product.sum(axis=rest, dtype=np.float64) if axis is not None else product.sum(dtype=np.float64)
        )
    return float(np.square(sums).sum())
